//! Clusters behind proxies.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::*;

/// A proxy: its address, and how each client greeted it.
struct Proxy {
    address: SocketAddr,
    greetings: watch::Receiver<Vec<String>>,
}

impl Proxy {
    /// Speaks HTTP CONNECT and answers `status`.
    async fn http(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, greetings) = watch::channel(Vec::new());
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                let target = head.split(' ').nth(1).unwrap().to_owned();
                sender.send_modify(|all| all.push(head));
                let answer = format!("HTTP/1.1 {status}\r\n\r\n");
                client.write_all(answer.as_bytes()).await.unwrap();
                if status.starts_with("200") {
                    tokio::spawn(pipe(client, target));
                }
            }
        });
        Self { address, greetings }
    }

    /// Speaks SOCKS5 with a user name and password.
    async fn socks5() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, greetings) = watch::channel(Vec::new());
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let mut greeting = [0; 3];
                client.read_exact(&mut greeting).await.unwrap();
                assert_eq!(greeting, [5, 1, 2]);
                client.write_all(&[5, 2]).await.unwrap();
                assert_eq!(client.read_u8().await.unwrap(), 1);
                let user = short_text(&mut client).await;
                let password = short_text(&mut client).await;
                client.write_all(&[1, 0]).await.unwrap();
                let mut command = [0; 10];
                client.read_exact(&mut command).await.unwrap();
                // Connect, to an IPv4 address.
                assert_eq!(command[..4], [5, 1, 0, 1]);
                let [.., a, b, c, d, high, low] = command;
                let port = u16::from_be_bytes([high, low]);
                let target = format!("{a}.{b}.{c}.{d}:{port}");
                sender.send_modify(|all| all.push(format!("{user}:{password} {target}")));
                client
                    .write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])
                    .await
                    .unwrap();
                tokio::spawn(pipe(client, target));
            }
        });
        Self { address, greetings }
    }

    async fn greeting(&mut self) -> String {
        let greeted = self.greetings.wait_for(|all| !all.is_empty());
        within(greeted).await.unwrap()[0].clone()
    }
}

async fn short_text(client: &mut TcpStream) -> String {
    let mut text = vec![0; usize::from(client.read_u8().await.unwrap())];
    client.read_exact(&mut text).await.unwrap();
    String::from_utf8(text).unwrap()
}

async fn pipe(mut client: TcpStream, target: String) {
    let mut server = TcpStream::connect(target).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

#[tokio::test]
async fn an_http_proxy_is_asked_to_connect() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut proxy = Proxy::http("200 OK").await;
    let mut config = config_of(&server);
    config.endpoint.proxy_url = Some(
        format!("http://us%40er:pass@{}", proxy.address)
            .parse()
            .unwrap(),
    );
    let connection = Running::start(config).connected().await;
    get(&connection, "/x").await.unwrap();
    let address = server.address;
    assert_eq!(
        proxy.greeting().await,
        format!(
            "CONNECT {address} HTTP/1.1\r\nHost: {address}\r\nProxy-Authorization: Basic dXNAZXI6cGFzcw==\r\n\r\n"
        )
    );
}

#[tokio::test]
async fn a_proxy_that_refuses_is_told_apart_from_the_server() {
    let server = FakeServer::start("127.0.0.1").await;
    let proxy = Proxy::http("403 Forbidden").await;
    let mut config = config_of(&server);
    config.endpoint.proxy_url = Some(format!("http://{}", proxy.address).parse().unwrap());
    let view = Running::start(config).disconnected().await;
    assert_eq!(
        view.trouble.unwrap().message,
        "its proxy refused or broke the connection"
    );
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_proxy_where_nobody_listens_is_told_apart_from_the_server() {
    let server = FakeServer::start("127.0.0.1").await;
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    for (proxy, told) in [
        (
            format!("http://{nobody}"),
            "its proxy refused the connection",
        ),
        (
            format!("socks5://{nobody}"),
            "its proxy refused the connection",
        ),
        (
            "http://no-such-name.invalid:1".to_owned(),
            "the name of its proxy did not resolve",
        ),
    ] {
        let mut config = config_of(&server);
        config.timing.connect_timeout = Duration::from_secs(15);
        config.endpoint.proxy_url = Some(proxy.parse().unwrap());
        let view = Running::start(config).disconnected().await;
        assert_eq!(view.trouble.unwrap().message, told);
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_socks_proxy_is_asked_too() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut proxy = Proxy::socks5().await;
    let mut config = config_of(&server);
    config.endpoint.proxy_url = Some(
        format!("socks5://user:pass@{}", proxy.address)
            .parse()
            .unwrap(),
    );
    let connection = Running::start(config).connected().await;
    get(&connection, "/x").await.unwrap();
    assert_eq!(
        proxy.greeting().await,
        format!("user:pass {}", server.address)
    );
}
