//! A further kube-apiserver over the same etcd.

use std::net::SocketAddr;

use super::servers::spawn_apiserver_at;
use super::{ControlPlane, is_ready, ports};
use crate::client::Client;
use crate::kubeconfig::Context;
use crate::poll::{PATIENCE, wait_for};
use crate::process::Process;

/// One more apiserver of a control plane, with its own caches.
pub struct Replica {
    process: Process,
    context: Context,
    port: u16,
}

impl ControlPlane {
    /// Starts another apiserver with the same certificate and tokens, over etcd at this address, and returns when it works.
    pub async fn replica(&self, etcd: SocketAddr) -> anyhow::Result<Replica> {
        self.replica_with(etcd, &[]).await
    }

    /// The same with further flags; the last of two equal flags counts.
    pub async fn replica_with(
        &self,
        etcd: SocketAddr,
        further: &[String],
    ) -> anyhow::Result<Replica> {
        let args = [self.options.apiserver_args.as_slice(), further].concat();
        let port = ports::free_port()?;
        let process = spawn_apiserver_at(
            self.dir.path(),
            "kube-apiserver-replica",
            port,
            &format!("http://{etcd}"),
            &args,
        )
        .await?;
        let mut context = self.context(super::User::Admin)?;
        context.server = format!("https://127.0.0.1:{port}");
        let replica = Replica {
            process,
            context,
            port,
        };
        let client = replica.client()?;
        wait_for("the replica", PATIENCE, async || {
            is_ready(&client, false, false).await
        })
        .await
        .map_err(|error| error.context(replica.process.log_tail()))?;
        Ok(replica)
    }
}

impl Replica {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// A client of this apiserver, as admin, on a connection of its own.
    pub fn client(&self) -> anyhow::Result<Client> {
        Client::new(&self.context)
    }
}
