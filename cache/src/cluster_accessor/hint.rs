//! What may help, for each reason why a cluster is not connected.

use super::NotConnectedReason;

impl NotConnectedReason {
    /// What may help whoever runs the cluster or the proxy. It holds no address and no credential.
    ///
    /// Where more is known than the reason, as of TLS, the trouble itself has a better one.
    pub fn hint(self) -> &'static str {
        match self {
            Self::ClusterStarting => "nothing has failed; the first connect has not ended",
            Self::OnDemand => {
                "nothing has failed; `connect: always` has it connected from the start"
            }
            Self::CredentialMissing => {
                "see the log for the file or the credential plugin that failed; both are looked for where the proxy runs, as its user"
            }
            Self::CredentialInvalid => {
                "check client-certificate, client-key and certificate-authority in the kubeconfig"
            }
            Self::Unauthorized => {
                "renew the token, the certificate or the login of its user in the kubeconfig"
            }
            Self::NameNotResolved => {
                "check the host of its server in the kubeconfig, and the resolver where the proxy runs"
            }
            Self::ConnectionRefused => {
                "check that the kube-apiserver, or what stands before it, is running, and the port of its server in the kubeconfig"
            }
            Self::ConnectTimeout => {
                "check the network and its firewalls, and the address of its server in the kubeconfig"
            }
            Self::TlsFailed => {
                "check that its server in the kubeconfig is a kube-apiserver, and what stands before it"
            }
            Self::ConnectFailed => {
                "see the log for what the system said; check the network where the proxy runs"
            }
            Self::ConnectionBroken => {
                "check whether the kube-apiserver restarts, or something on the way cuts connections"
            }
            Self::ProbeTimeout => {
                "check the load of the kube-apiserver and of the network; `probe.timeout` says how long it may take"
            }
            Self::ServerError => {
                "see the kube-apiserver's own /readyz?verbose: it starts, or its etcd is away"
            }
            Self::NotKubernetes => "check the path of the server's URL",
            Self::ClusterReplaced => {
                "nothing, if it was replaced or restored on purpose; else check where its server in the kubeconfig leads"
            }
            Self::ClusterRemoved => "no source of clusters names it any more",
            Self::InternalError => "a bug of the proxy: the log says where it panicked",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_has_its_own() {
        let hints: BTreeSet<_> = NotConnectedReason::ALL.iter().map(|it| it.hint()).collect();
        assert_eq!(hints.len(), NotConnectedReason::ALL.len());
    }
}
