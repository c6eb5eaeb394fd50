//! A credential in a file that is not there yet.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleetcache_e2e::sim::SimCluster;

use super::bed::{Bed, CONFIGMAPS, assert_unavailable, is_about, sim};
use crate::pair::warm;

/// A kubeconfig of two clusters, of which the second has its token in a file beside it.
fn kubeconfig(good: &SimCluster, late: &SimCluster) -> String {
    let cluster = |cluster: &SimCluster| {
        format!(
            "- name: {}\n  cluster:\n    server: https://{}\n    certificate-authority-data: {}\n",
            cluster.name(),
            cluster.address(),
            STANDARD.encode(cluster.ca_pem())
        )
    };
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n{}{}users:\n- name: good\n  user: {{ token: {} }}\n- name: late\n  user: {{ tokenFile: token }}\ncontexts:\n- name: good\n  context: {{ cluster: good, user: good }}\n- name: late\n  context: {{ cluster: late, user: late }}\n",
        cluster(good),
        cluster(late),
        good.token()
    )
}

#[tokio::test]
async fn a_missing_credential_file_is_told_at_once_and_taken_when_it_appears() {
    let (good, late) = (sim("good").await, sim("late").await);
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("kubeconfig"), kubeconfig(&good, &late)).unwrap();
    // No attempt by itself before the test is long over: what connects it is the file.
    let settings = "connections: { backoffMin: 1h, backoffMax: 1h }";
    let bed = Bed::serve(files, settings).await;
    bed.served("good", CONFIGMAPS).await;
    let healthy = bed.client("good");
    warm(&healthy, CONFIGMAPS).await;
    bed.told("late", "CredentialMissing").await;
    let client = bed.client("late");
    let mut quickest = Duration::MAX;
    for _ in 0..20 {
        let answer = client.get(CONFIGMAPS).await.unwrap();
        assert_unavailable("late", &answer);
        assert!(is_about(&answer, "CredentialMissing"), "{}", answer.text());
        quickest = quickest.min(answer.elapsed);
    }
    assert!(quickest < Duration::from_millis(50), "{quickest:?}");
    assert_eq!(
        late.counts().accepted,
        0,
        "nothing to show, so nobody to ask"
    );
    assert!(healthy.get(CONFIGMAPS).await.unwrap().is_hit());

    // Written as a mounted Secret is: whole, by a rename; with the newline that editors leave.
    std::fs::write(bed.file("next"), format!("{}\n", late.token())).unwrap();
    std::fs::rename(bed.file("next"), bed.file("token")).unwrap();
    bed.served("late", CONFIGMAPS).await;
    warm(&client, CONFIGMAPS).await;
    assert!(healthy.get(CONFIGMAPS).await.unwrap().is_hit());
}
