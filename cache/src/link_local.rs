//! Addresses that belong to the machine or the network segment that dials them. Clouds answer there with the machine's own
//! credentials.

use std::net::{IpAddr, Ipv6Addr};

/// Where AWS answers over IPv6 beside 169.254.169.254: a unique local address, link-local by its meaning.
const AWS_METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Whether an address is one, in whatever form.
pub(crate) fn is_address(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address == AWS_METADATA,
    }
}

/// Whether the host of a URL is such an address. What is no address in plain form is a name, which tells when it is looked
/// up.
pub(crate) fn is_host(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host.parse().is_ok_and(is_address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_addresses_are_known_in_every_form() {
        for host in [
            "169.254.169.254",
            "169.254.0.1",
            "[fe80::1]",
            "[febf::1]",
            "[::ffff:169.254.169.254]",
            "[::ffff:a9fe:a9fe]",
            "[fd00:ec2::254]",
        ] {
            assert!(is_host(host), "{host}");
        }
        for host in [
            "10.0.0.1",
            "127.0.0.1",
            "[::1]",
            "169.253.0.1",
            "[fec0::1]",
            "[fd00:ec2::253]",
            "metadata.example",
            "2852039166",
        ] {
            assert!(!is_host(host), "{host}");
        }
    }
}
