//! Datagrams whose data goes straight to where it is guessed to belong, over sockets of this host.

use super::conformance::{Node, lend, pattern};
use super::socket_tests::{narrow_to, socket};
use super::{Channel, Inbox, Landing, Link, Socket};

const HEADER: usize = 64;

fn landing_at(memory: &mut [u8], payload: usize) -> Landing {
    Landing { memory: lend(memory), header: HEADER, payload, trailer: 0 }
}

/// Datagrams of these sizes, and what they are.
fn datagrams(sizes: &[usize]) -> Vec<Vec<u8>> {
    sizes.iter().enumerate().map(|(seed, size)| pattern(seed + 1, *size)).collect()
}

/// Sends them from one to the other, in one message where they have one size, and lets them land.
fn land(one: &mut Node<Socket>, two: &mut Node<Socket>, sent: &[Vec<u8>], landing: &Landing) {
    let to = one.resolve(two);
    for bytes in sent {
        one.post(Channel::Data, to, bytes, &[]);
    }
    one.flush();
    for _ in 0..2_000_000 {
        if two.link.poll_landing(Channel::Data, &mut two.inbox, landing.clone()) > Some(0) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("nothing came");
}

/// All that waits, datagram by datagram.
fn rest(inbox: &mut Inbox) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| inbox.pop()).map(|datagram| datagram.to_vec()).collect()
}

/// The data of the datagrams, one behind the other.
fn data(sent: &[Vec<u8>]) -> Vec<u8> {
    sent.iter().flat_map(|bytes| bytes[HEADER.min(bytes.len())..].to_vec()).collect()
}

#[test]
fn data_lands_where_it_belongs_and_headers_in_the_buffer() {
    for sizes in [vec![30_000], vec![3000; 5], vec![3000, 3000, 3000, 1000], vec![3000]] {
        let (mut one, mut two) = (Node::new(narrow_to(9000)), Node::new(narrow_to(9000)));
        if sizes[0] > 9000 {
            (one, two) = (Node::new(socket(true)), Node::new(socket(true)));
        }
        let (sent, payload) = (datagrams(&sizes), sizes[0] - HEADER);
        let mut memory = vec![0; 40_000];
        let landing = landing_at(&mut memory[1000..], payload);
        land(&mut one, &mut two, &sent, &landing);
        assert!(!two.inbox.is_empty() && two.inbox.len() == sizes.len());
        assert!(two.inbox.front().is_none() && two.inbox.pop().is_none(), "not before it is settled");
        let (bytes, size, stamp) = two.inbox.landed().expect("it was as guessed");
        assert!((bytes.len(), size) == (sizes.iter().sum(), sizes[0]) && stamp > 0);
        for (at, sent) in sent.iter().enumerate() {
            assert!(bytes[at * size..at * size + HEADER] == sent[..HEADER], "header {at}");
        }
        two.inbox.settle_landed(sizes.len());
        assert!(two.inbox.is_empty() && two.inbox.landed().is_none());
        let data = data(&sent);
        assert!(memory[1000..1000 + data.len()] == data);
        assert!(memory[..1000].iter().chain(&memory[1000 + data.len()..]).all(|byte| *byte == 0));
        assert_eq!(two.inbox.buffers(), 1, "its buffer is used again");
    }
}

/// What is behind the data of each stays in the buffer too; behind that of the last, which ends with the memory.
#[test]
fn trailers_stay_in_the_buffer() {
    const TRAILER: usize = 16;
    let bare = HEADER + TRAILER;
    for sizes in [vec![3000; 4], vec![3000, 3000, 1000], vec![3000]] {
        let (mut one, mut two) = (Node::new(narrow_to(9000)), Node::new(narrow_to(9000)));
        let sent = datagrams(&sizes);
        let len = sizes.iter().sum::<usize>() - sizes.len() * bare;
        let mut memory = vec![0; len + 1000];
        let mut landing = landing_at(&mut memory[..len], 3000 - bare);
        landing.trailer = TRAILER;
        land(&mut one, &mut two, &sent, &landing);
        let (bytes, size) = two.inbox.landed_mut().expect("it was as guessed");
        assert!((bytes.len(), size) == (sizes.iter().sum(), sizes[0]));
        for (at, sent) in sent.iter().enumerate() {
            let here = &bytes[at * size..][..sent.len()];
            assert!(here[..HEADER] == sent[..HEADER], "header {at}");
            assert!(here[sent.len() - TRAILER..] == sent[sent.len() - TRAILER..], "trailer {at}");
        }
        let data: Vec<u8> =
            sent.iter().flat_map(|bytes| bytes[HEADER..bytes.len() - TRAILER].to_vec()).collect();
        // One is done with; the others are as they were sent.
        two.inbox.settle_landed(1);
        assert!(memory[..len] == data && memory[len..].iter().all(|byte| *byte == 0));
        assert!(rest(&mut two.inbox) == sent[1..]);
    }
}

/// Whatever is not done with where it has landed is as it was sent.
#[test]
fn what_was_guessed_wrongly_is_put_together_again() {
    // What was guessed, what came, and how many of them are done with.
    let cases: [(usize, &[usize], usize); 7] = [
        (3000, &[3000; 5], 0),
        (3000, &[3000; 5], 2),
        (3000, &[3000, 3000, 500], 1),
        (4000, &[3000; 5], 0),
        (2500, &[3000; 5], 0),
        (3000, &[40], 0),
        (2500, &[2600], 0),
    ];
    for (guessed, sizes, taken) in cases {
        let (mut one, mut two) = (Node::new(narrow_to(9000)), Node::new(narrow_to(9000)));
        let sent = datagrams(sizes);
        let mut memory = vec![0; 40_000];
        let landing = landing_at(&mut memory, guessed - HEADER);
        land(&mut one, &mut two, &sent, &landing);
        two.inbox.settle_landed(taken);
        // Others that come behind it stay behind it.
        let to = one.resolve(&two);
        one.post(Channel::Data, to, b"behind", &[]);
        one.flush();
        while two.link.poll(Channel::Data, &mut two.inbox) == 0 {
            std::thread::yield_now();
        }
        let mut expected = sent[taken..].to_vec();
        expected.push(b"behind".to_vec());
        assert!(rest(&mut two.inbox) == expected, "{guessed} guessed, {sizes:?} sent, {taken} taken");
    }
}

/// No byte is written beyond the end of the memory, whatever comes.
#[test]
fn memory_that_ends_in_the_middle_of_a_datagram_is_not_left() {
    for end in [1, 100, 2936, 2937, 5000, 8808, 20_000] {
        let (mut one, mut two) = (Node::new(narrow_to(9000)), Node::new(narrow_to(9000)));
        let sent = datagrams(&[3000; 4]);
        let mut memory = vec![0; 30_000];
        let landing = landing_at(&mut memory[..end], 3000 - HEADER);
        land(&mut one, &mut two, &sent, &landing);
        two.inbox.settle_landed(0);
        assert!(rest(&mut two.inbox) == sent, "{end}");
        let data = data(&sent);
        let here = end.min(data.len());
        assert!(memory[..here] == data[..here], "{end}");
        assert!(memory[here..].iter().all(|byte| *byte == 0), "{end}: beyond");
    }
}

#[test]
fn a_socket_without_anything_gives_the_buffer_back() {
    let mut two = Node::new(socket(true));
    let mut memory = vec![0; 10_000];
    for _ in 0..100 {
        let landing = landing_at(&mut memory, 3000);
        assert_eq!(two.link.poll_landing(Channel::Data, &mut two.inbox, landing), Some(0));
        assert!(two.inbox.is_empty());
    }
    assert_eq!(two.inbox.buffers(), 1);
}

/// What a debugger, or who writes checkpoints, has protected is told, and costs one message; the next ones come as ever.
#[test]
fn memory_that_cannot_be_written_to_costs_one_message_and_is_told() {
    let (mut one, mut two) = (Node::new(socket(true)), Node::new(socket(true)));
    let sent = datagrams(&[9000, 9001, 9002]);
    let mut pages = memmap2::MmapMut::map_anon(65_536).expect("memory");
    let landing = landing_at(&mut pages, 30_000);
    let pages = pages.make_read_only().expect("protected");
    let to = one.resolve(&two);
    for bytes in &sent {
        one.post(Channel::Data, to, bytes, &[]);
        one.flush();
    }
    let mut come = Some(0);
    for _ in 0..2_000_000 {
        come = two.link.poll_landing(Channel::Data, &mut two.inbox, landing.clone());
        if come != Some(0) {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!((come, two.link.counters().receive_errors), (None, 1));
    assert!(*two.next(Channel::Data) == sent[1] && *two.next(Channel::Data) == sent[2]);
    assert!(pages.iter().all(|byte| *byte == 0));
}

/// Anybody can send an empty datagram: it hides nothing that is behind it.
#[test]
fn an_empty_datagram_is_passed_over() {
    let (mut one, mut two) = (Node::new(socket(true)), Node::new(socket(true)));
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = two.link.ports()[Channel::Data as usize];
    for _ in 0..2 {
        stranger.send_to(&[], ("127.0.0.1", port)).expect("sent");
    }
    let sent = datagrams(&[9000]);
    let mut memory = vec![0; 10_000];
    let landing = landing_at(&mut memory, 9000 - HEADER);
    land(&mut one, &mut two, &sent, &landing);
    assert_eq!(two.link.counters().empty, 2);
    two.inbox.settle_landed(0);
    assert!(rest(&mut two.inbox) == sent);
}
