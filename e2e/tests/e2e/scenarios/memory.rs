//! What is in the proxy's memory, byte by byte, and what is not.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use anyhow::Context as _;
use fleetcache_e2e::control_plane::random_name;
use fleetcache_e2e::sim::SimCluster;
use serde_json::{Value, json};

use super::bed::{Bed, sim};
use crate::pair::warm;

const COUNT: usize = 500;

/// How much of a mapping is read at a time, and how much of it again with the next part: no marker is longer.
const PART: usize = 1 << 20;
const OVERLAP: usize = 64;

/// All writable memory of a process, part by part. The mappings may change meanwhile; what is gone is left out.
fn scan(pid: u32, mut look: impl FnMut(&[u8])) -> anyhow::Result<()> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = File::open(format!("/proc/{pid}/mem")).context(
        "the memory of a child process cannot be read here (needs ptrace of one's own children)",
    )?;
    let mut buffer = vec![0; PART + OVERLAP];
    for line in maps.lines() {
        let mut fields = line.split(' ');
        let (range, rights) = (fields.next(), fields.next());
        if !rights.is_some_and(|rights| rights.starts_with("rw")) {
            continue;
        }
        let (from, to) = range
            .and_then(|range| range.split_once('-'))
            .context("a range")?;
        let (mut at, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
        while at < to {
            let length = buffer.len().min(usize::try_from(to - at)?);
            // Device mappings and pages of a mapping that has just gone are no memory.
            if let Ok(read) = memory.read_at(&mut buffer[..length], at) {
                look(&buffer[..read]);
            }
            at += PART as u64;
        }
    }
    Ok(())
}

/// Objects whose data begins with a word that stands nowhere else.
struct Marked {
    word: String,
}

impl Marked {
    fn create(cluster: &SimCluster, plural: &str, kind: &str, label: &str) -> Self {
        let word = random_name("marker");
        for n in 0..COUNT {
            let object = json!({
                "apiVersion": "v1", "kind": kind, "data": {"value": format!("{word}-{n:05}")},
                "metadata": {"name": format!("{label}-{n}"), "namespace": "default", "labels": {"is": label}},
            });
            cluster.store().create(plural, object).unwrap();
        }
        Self { word }
    }

    /// How many of the objects are in the memory of a process.
    fn found(&self, pid: u32) -> usize {
        let word = format!("{}-", self.word).into_bytes();
        let mut found = BTreeSet::new();
        scan(pid, |part| {
            let mut rest = part;
            while let Some(at) = find(rest, &word) {
                // A freed buffer may end within a number, with anything behind it.
                let number = rest.get(at + word.len()..at + word.len() + 5);
                let number = number.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
                found.extend(number.filter(|number: &usize| *number < COUNT));
                rest = &rest[at + word.len()..];
            }
        })
        .unwrap();
        found.len()
    }
}

/// Where a word is; by its first byte first, since this is not an optimised build.
fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + bytes[from..].iter().position(|byte| *byte == word[0])?;
        if bytes[at..].starts_with(word) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// Each of the requests that would start an informer, for some objects of a kind and not for the others.
async fn read_some(bed: &Bed, path: &str) {
    let client = bed.client("vault");
    for turn in 0..5 {
        let one = format!("{path}/read-{turn}");
        client.get(&one).await.unwrap().ok().unwrap();
        for query in [
            "labelSelector=is%3Dread",
            "labelSelector=is%3Dread&resourceVersion=0",
        ] {
            let list = client.get(&format!("{path}?{query}")).await.unwrap();
            let list = list.ok().unwrap().json().unwrap();
            assert_eq!(list["items"].as_array().map(Vec::len), Some(COUNT));
        }
        let watch = format!("{path}?watch=1&labelSelector=is%3Dread&timeoutSeconds=1");
        let mut lines = client.lines(&watch).await.unwrap();
        assert!(lines.next().await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_kind_that_is_never_kept_is_never_in_memory() {
    let vault = sim("vault").await;
    let kinds = [
        ("secrets", "Secret"),
        ("configmaps", "ConfigMap"),
        ("services", "Service"),
    ];
    let marked = kinds.map(|(plural, kind)| {
        let of = |label| Marked::create(&vault, plural, kind, label);
        (plural, of("read"), of("unread"))
    });
    // Secrets are never kept by themselves, ConfigMaps by this configuration, and Services are.
    let settings = "resources: [ { group: '', resource: configmaps, cache: never } ]";
    let bed = Bed::start(&[vault.context()], settings).await;
    bed.served("vault", "/api/v1/namespaces").await;
    let asked = |verb: &str, plural: &str| vault.counts().requests(verb, plural);
    let pid = bed.proxy.id();
    for (plural, read, unread) in marked {
        let path = format!("/api/v1/namespaces/default/{plural}");
        read_some(&bed, &path).await;
        if plural == "services" {
            warm(&bed.client("vault"), &path).await;
            let (read, unread) = (read.found(pid), unread.found(pid));
            println!("{plural}: {read} read and {unread} others of {COUNT} in memory");
            assert_eq!(
                (read, unread),
                (COUNT, COUNT),
                "the check finds what is kept"
            );
            continue;
        }
        // Nobody asked for these, so that not even a buffer that was freed has them.
        let (read, unread) = (read.found(pid), unread.found(pid));
        println!("{plural}: {read} read and {unread} others of {COUNT} in memory");
        assert_eq!(unread, 0, "{plural}");
        let why = bed.proxy.why("vault", &path).unwrap();
        assert_eq!(why["reason"], Value::from("never"), "{why}");
        // Clients' own requests and no others: ten lists, five objects, five watches.
        let counts = ["list", "get", "watch"].map(|verb| asked(verb, plural));
        assert_eq!(counts, [10, 5, 5], "{plural}");
    }
}
