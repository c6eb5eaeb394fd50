//! What a test asks etcd itself.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::ControlPlane;

impl ControlPlane {
    /// Where etcd listens, in plain HTTP.
    pub fn etcd_address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.ports.etcd).into()
    }

    /// Forgets all history before a resourceVersion, as the apiserver has it done every five minutes.
    pub async fn compact(&self, resource_version: u64) -> anyhow::Result<()> {
        let address = self.etcd_address();
        let body = format!("{{\"revision\": {resource_version}}}");
        let mut stream = TcpStream::connect(address).await?;
        let request = format!(
            "POST /v3/kv/compaction HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let line = answer.lines().next().context("etcd did not answer")?;
        ensure!(
            line.contains(" 200 "),
            "etcd would not be compacted: {answer}"
        );
        Ok(())
    }
}
