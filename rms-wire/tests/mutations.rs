//! Feeds broken frames to every decoder: none panics, none takes much memory, none misreads what it accepts.
//!
//! `LIMBER_FUZZ_CASES` is the number of cases of all targets together (20,000 by default); `LIMBER_SEED` replays a run.

mod common;

use common::Deployment;
use common::domain::identity;
use common::samples::{Sample, samples};
use rms_model::{Role, Span, Time};
use rms_wire::codec::HEADER_BYTES;
use rms_wire::tls::Peer;
use rms_wire::{Kind, NewKey, TokenText};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use test_kit::{Dice, any_seed, variable};

/// Calls `target` with many mutations of `seeds`.
fn fuzz(name: &str, seeds: &[Vec<u8>], mut target: impl FnMut(&[u8])) {
    let n_cases = variable("LIMBER_FUZZ_CASES").unwrap_or(20_000) / N_TARGETS;
    let (mut dice, _replay) = any_seed(name);
    let before = peak_kib();
    for _ in 0..n_cases {
        target(&mutated(&mut dice, seeds));
    }
    let taken = peak_kib() - before;
    assert!(taken < 128 << 10, "{taken} KiB were taken");
}

/// Returns the peak memory of this process so far, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs is mounted");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the kernel keeps it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

fn mutated(dice: &mut Dice, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = dice.one_of(seeds);
    for _ in 0..dice.number(1, 4) {
        let at = dice.below(bytes.len() as u64 + 1) as usize;
        match dice.below(8) {
            // Random bytes.
            0 => {
                bytes = vec![0; dice.below(300) as usize];
                dice.fill(&mut bytes);
            }
            // One bit, one byte.
            1 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            2 if at < bytes.len() => bytes[at] = dice.roll() as u8,
            // Truncated, and doubled.
            3 => bytes.truncate(at),
            4 => bytes.extend_from_within(at..),
            // A huge length in place of a small one.
            5 => {
                // Of bincode, and of texts, bytes, lists and maps of MessagePack.
                let markers = [251_u8, 252, 253, 0xdb, 0xc6, 0xdd, 0xdf];
                let mut length = vec![dice.one_of(&markers)];
                length.extend(dice.roll().to_be_bytes());
                let end = (at + dice.below(9) as usize).min(bytes.len());
                bytes.splice(at..end, length);
            }
            // The end of another seed.
            6 => {
                let other = dice.one_of(seeds);
                bytes.truncate(at);
                bytes.extend(&other[dice.below(other.len() as u64 + 1) as usize..]);
            }
            _ => bytes.insert(at, dice.roll() as u8),
        }
    }
    bytes
}

fn fuzz_kind(kind: Kind) {
    let samples: Vec<Sample> = samples().into_iter().filter(|sample| sample.kind == kind).collect();
    let seeds: Vec<Vec<u8>> = samples.iter().map(|sample| sample.frame.clone()).collect();
    let again = samples.first().expect("every kind has a sample").again;
    let mut n_accepted = 0;
    fuzz(&format!("{kind:?}"), &seeds, |frame| {
        let mut frame = frame.to_vec();
        // Most mutations would end at the wrong length: correct it to get past that check.
        if let Some((header, payload)) = frame.split_first_chunk_mut::<HEADER_BYTES>() {
            header[4..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        }
        if let Ok(encoded) = again(&frame) {
            n_accepted += 1;
            // What was accepted encodes to canonical bytes, which decode and encode to themselves.
            let twice = again(&encoded).expect("what was accepted can be sent");
            assert_eq!(twice, encoded);
        }
    });
    println!("{kind:?}: {n_accepted} mutations were still messages");
}

macro_rules! kinds {
    ($($name:ident => $kind:ident,)*) => {
        $(
            #[test]
            fn $name() {
                fuzz_kind(Kind::$kind);
            }
        )*

        #[test]
        fn every_kind_is_a_target() {
            assert_eq!([$(Kind::$kind),*], Kind::ALL);
            assert_eq!(Kind::ALL.len() as u64 + 3, N_TARGETS);
        }
    };
}

/// The kinds, and certificates, requests and tokens.
const N_TARGETS: u64 = 28;

kinds! {
    hello => Hello,
    hello_answer => HelloAnswer,
    join_request => JoinRequest,
    join_answer => JoinAnswer,
    to_server => ToServer,
    to_agent => ToAgent,
    follow_order => FollowOrder,
    spooled => Spooled,
    masks_asked => MasksAsked,
    masks_seen => MasksSeen,
    client_request => ClientRequest,
    answer_part => AnswerPart,
    followed => Followed,
    input => Input,
    input_at => InputAt,
    peer_open => PeerOpen,
    pmi_up => PmiUp,
    pmi_down => PmiDown,
    peer_exec => PeerExec,
    step_down => StepDown,
    step_up => StepUp,
    launcher_says => LauncherSays,
    launcher_told => LauncherTold,
    negotiator_says => NegotiatorSays,
    negotiator_told => NegotiatorTold,
}

#[test]
fn certificates() {
    let deployment = Deployment::new("d1");
    let pem = |pem: String| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate").to_vec();
    let seeds = [
        pem(deployment.credentials(Role::Agent, "n1").chain_pem()),
        pem(deployment.credentials(Role::Server, "server").chain_pem()),
        pem(deployment.authority.ca_pem().to_owned()),
    ];
    fuzz("certificates", &seeds, |bytes| {
        if let Ok(peer) = Peer::of(&CertificateDer::from(bytes)) {
            assert!(rms_model::identity::check_name(&peer.identity.name).is_ok());
        }
    });
}

#[test]
fn signing_requests() {
    let deployment = Deployment::new("d1");
    let seeds = [(); 3].map(|()| NewKey::generate().expect("a key").csr_der().to_vec());
    let user = identity(Role::User, "alice");
    let (from, until) = (Time::EPOCH, Time::EPOCH + Span::from_hours(1));
    fuzz("signing_requests", &seeds, |bytes| {
        if let Ok(chain) = deployment.authority.sign(bytes, &user, "5e", from, until) {
            let certificate = CertificateDer::from_pem_slice(chain.as_bytes()).expect("a certificate");
            let peer = Peer::of(&certificate).expect("we made it");
            assert_eq!(peer.identity, user);
        }
    });
}

#[test]
fn tokens() {
    let text = |address| TokenText::draw(&"ab".repeat(32), address).expect("well-formed").to_string().into_bytes();
    let seeds = [text("127.0.0.1:6818"), text("[::1]:6818")];
    fuzz("tokens", &seeds, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(token) = text.parse::<TokenText>() {
            assert_eq!(token.to_string().parse::<TokenText>().as_ref(), Ok(&token));
        }
    });
}
