//! Who a user is.

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserInfo {
    /// The user's name.
    pub name: String,
    /// Groups the user belongs to.
    pub groups: Vec<String>,
}

impl UserInfo {
    /// The one user of the generated token: `fleetcache:admin` in the groups `fleetcache:admins` and
    /// `system:authenticated`. The names are the proxy's own; no cluster knows them.
    pub fn admin() -> Self {
        Self {
            name: "fleetcache:admin".to_owned(),
            groups: vec![
                "fleetcache:admins".to_owned(),
                "system:authenticated".to_owned(),
            ],
        }
    }
}
