//! The business card: what a process publishes so that its peers can reach it.
//!
//! Little-endian. One byte of version, one byte of how many addresses follow; each address is
//! preceded by its length in two bytes:
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | incarnation of the module behind the address |
//! | 4..20 | key that tags packets for it |
//! | 20..24 | longest datagram it takes |
//! | 24..28 | speed, Mbit/s |
//! | 28.. | name of the link, as the link wrote it |
//!
//! It is not the record of the C component, which speaks another protocol.

/// One way to reach a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Which life of the module it is.
    pub incarnation: u32,
    /// The key that tags packets for it.
    pub key: [u8; 16],
    /// Longest datagram it takes, header included.
    pub max_datagram: u32,
    /// Speed, Mbit/s.
    pub speed: u32,
    /// Name of the link, as the link wrote it.
    pub name: Vec<u8>,
}

/// Version of the card.
const VERSION: u8 = 1;

/// Bytes before the name.
const HEAD: usize = 28;

/// Writes a card. More than 255 addresses are not published.
pub fn write(addresses: &[Address]) -> Vec<u8> {
    let addresses = &addresses[..addresses.len().min(255)];
    let mut card = vec![VERSION, addresses.len() as u8];
    for address in addresses {
        let name = &address.name[..address.name.len().min(usize::from(u16::MAX) - HEAD)];
        card.extend(((HEAD + name.len()) as u16).to_le_bytes());
        card.extend(address.incarnation.to_le_bytes());
        card.extend(address.key);
        card.extend(address.max_datagram.to_le_bytes());
        card.extend(address.speed.to_le_bytes());
        card.extend(name);
    }
    card
}

/// Reads a card; `None` when it is of another version or damaged.
pub fn parse(card: &[u8]) -> Option<Vec<Address>> {
    let (&[VERSION, count], mut rest) = card.split_first_chunk::<2>()? else { return None };
    let mut addresses = Vec::new();
    for _ in 0..count {
        let (len, tail) = rest.split_first_chunk::<2>()?;
        let (record, tail) = tail.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        let (incarnation, record) = record.split_first_chunk::<4>()?;
        let (key, record) = record.split_first_chunk::<16>()?;
        let (max_datagram, record) = record.split_first_chunk::<4>()?;
        let (speed, name) = record.split_first_chunk::<4>()?;
        addresses.push(Address {
            incarnation: u32::from_le_bytes(*incarnation),
            key: *key,
            max_datagram: u32::from_le_bytes(*max_datagram),
            speed: u32::from_le_bytes(*speed),
            name: name.to_vec(),
        });
        rest = tail;
    }
    Some(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Address> {
        (0..3_u8)
            .map(|n| Address {
                incarnation: 0x0102_0304 + u32::from(n),
                key: [n; 16],
                max_datagram: 1472,
                speed: 10_000,
                name: vec![n; usize::from(n) * 7],
            })
            .collect()
    }

    #[test]
    fn a_card_survives_the_journey() {
        assert_eq!(parse(&write(&sample())), Some(sample()));
        assert_eq!(parse(&write(&[])), Some(vec![]));
    }

    #[test]
    fn a_shortened_card_is_refused() {
        let card = write(&sample());
        for len in 0..card.len() {
            assert_eq!(parse(&card[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn another_version_is_refused() {
        let mut card = write(&sample());
        card[0] = 2;
        assert_eq!(parse(&card), None);
    }
}
