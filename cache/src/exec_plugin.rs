//! Credentials printed by a program (client.authentication.k8s.io).

/// An `exec` entry of a kubeconfig.
#[derive(Clone, Debug)]
pub struct ExecPluginConfig {
    /// The program, absolute or found on `PATH`.
    pub command: std::path::PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables added to its environment.
    pub env: Vec<(String, String)>,
    /// `client.authentication.k8s.io/v1` or `v1beta1`.
    pub api_version: String,
}
