use tokio::net::TcpListener;

use super::*;

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = listener.local_addr().unwrap();
    (listener, socket)
}

#[tokio::test]
async fn of_several_addresses_the_one_that_listens_is_used() {
    let (_listener, socket) = listener().await;
    let address = Address {
        host: "localhost".to_owned(),
        ..Address::local(socket.port())
    };
    assert_eq!(
        Route::find(&address, &Connections::default())
            .await
            .unwrap()
            .endpoints[0]
            .peers,
        [Peer::Tcp(socket)]
    );
}

/// Replicas behind one name, as the DNS of a cluster returns them: each gets its share, and one that is down
/// gets none.
#[tokio::test]
async fn connections_take_turns_over_the_addresses_that_listen() {
    let one = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = one.local_addr().unwrap().port();
    let at = |host: &str| SocketAddr::new(host.parse().unwrap(), port);
    let other = TcpListener::bind(at("127.0.0.3")).await.unwrap();
    let ports = [at("127.0.0.1"), at("127.0.0.2"), at("127.0.0.3")];
    let listening = listening_sockets(ports.to_vec()).await;
    let route = Route::from_peers(listening.into_iter().map(Peer::Tcp).collect(), None);
    let reached: Vec<Peer> = (0..4).map(|_| route.next_peer(0).clone()).collect();
    assert_eq!(reached, [0, 2, 0, 2].map(|place: usize| Peer::Tcp(ports[place])));
    drop((one, other));
    assert_eq!(
        listening_sockets(ports.to_vec()).await,
        [ports[0]],
        "where none listens"
    );
}

#[tokio::test]
async fn addresses_of_two_kinds_are_never_mixed() {
    let one = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = one.local_addr().unwrap();
    let Ok(other) = TcpListener::bind(("::1", socket.port())).await else {
        return;
    };
    let other = other.local_addr().unwrap();
    assert_eq!(listening_sockets(vec![other, socket]).await, [other]);
    assert_eq!(listening_sockets(vec![socket, other]).await, [socket]);
}

async fn route_to_three(balance: Balance) -> Route {
    let connections = Connections {
        other_addresses: vec![Address::local(2), Address::local(3)],
        balance,
        ..Connections::default()
    };
    Route::find(&Address::local(1), &connections).await.unwrap()
}

#[tokio::test]
async fn several_endpoints_get_requests_in_turn_by_load_or_by_key() {
    let turns = |route: &Route| [(); 4].map(|()| route.choose(None));
    let route = route_to_three(Balance::RoundRobin).await;
    assert_eq!(turns(&route), [0, 1, 2, 0]);
    assert_eq!((route.of_routing_key("a"), route.of_next_round(1)), (None, None));
    let route = route_to_three(Balance::LeastLoaded).await;
    for endpoint in [0, 0, 1, 2, 2] {
        route.begin_request(endpoint);
    }
    assert_eq!(turns(&route), [1; 4]);
    route.end_request(2);
    route.end_request(2);
    assert_eq!(turns(&route), [2; 4]);
    let route = route_to_three(Balance::Sticky).await;
    assert_eq!(turns(&route), [0, 1, 2, 0]);
    assert_eq!(route.choose(route.of_next_round(1)), 1);
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|key| route.of_routing_key(key).unwrap());
    assert_eq!(
        keys,
        ["a", "b", "c", "d", "e", "f", "g", "h"].map(|key| route.of_routing_key(key).unwrap())
    );
    assert!(keys.iter().any(|endpoint| *endpoint != keys[0]), "{keys:?}");
}
