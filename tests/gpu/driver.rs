//! The driver of a GPU, without any plan: memory, bytes on their way, recordings, times, and what it refuses.

use crate::device::{open, options};
use kernwright_runtime::Gpu;
use kernwright_runtime::driver::{Address, Command, Driver, DriverError, Fetch};
use kernwright_runtime::gpu::{self, products::Pick};

fn gpu(what: &str) -> Option<Gpu> {
    options(what).map(|options| open(&options, false, Pick::First))
}

fn room(gpu: &mut Gpu, bytes: usize) -> Address {
    let allocation = gpu.allocate("a test's", bytes).unwrap_or_else(|error| panic!("{error}"));
    Address { allocation, offset: 0 }
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at * 31 + at / 251 + seed * 7) % 256) as u8).collect()
}

#[test]
fn bytes_come_back_as_they_went() {
    let Some(mut gpu) = gpu("copies") else { return };
    for bytes in [1, 3, 255, 4096, (2 << 20) + 7, (4 << 20) + 1, (40 << 20) + 13] {
        let to = room(&mut gpu, bytes + 5).after(5);
        let sent = pattern(bytes, bytes);
        gpu.upload(to, &sent).expect("it fits");
        let mut found = vec![0; bytes];
        gpu.download(to, &mut found).expect("it fits");
        assert!(found == sent, "{bytes} bytes");
        gpu.launch(&Command::Zero { at: to.after(bytes / 3), bytes: bytes - bytes / 3 }).expect("it fits");
        gpu.download(to, &mut found).expect("it fits");
        assert!(found[..bytes / 3] == sent[..bytes / 3] && found[bytes / 3..].iter().all(|byte| *byte == 0));
        gpu.free(to.allocation).expect("it is there");
    }
    assert_eq!(gpu.bytes_in_use(), 0);
}

#[test]
fn what_is_taken_beside_plans_is_known_before_and_counted() {
    let Some(mut gpu) = gpu("memory beside plans") else { return };
    let beside = gpu::beside(gpu.facts().capability).iter().map(|(_, bytes)| *bytes as u64).sum::<u64>();
    let usage = gpu.usage();
    assert_eq!(usage.allocated, Some(beside));
    // The device says so too: it hands memory out in pieces of 2 MiB.
    let taken = usage.taken.expect("the driver tells");
    assert!(taken >= beside, "{taken} of {beside} bytes are taken");
    room(&mut gpu, 5000);
    assert_eq!(gpu.usage().allocated, Some(beside + 5000));
}

#[test]
fn uploads_are_in_order_with_commands() {
    let Some(mut gpu) = gpu("the order of uploads") else { return };
    // Twice as much as can be under way at once.
    let (n, bytes) = (3000, 11_001);
    let (from, to) = (room(&mut gpu, bytes), room(&mut gpu, n * bytes));
    for number in 0..n {
        gpu.upload(from, &pattern(bytes, number)).expect("it fits");
        let to = to.after(number * bytes);
        gpu.launch(&Command::Copy { from, to, bytes }).expect("it fits");
    }
    let mut found = vec![0; n * bytes];
    gpu.download(to, &mut found).expect("it fits");
    let wrong = found.chunks(bytes).enumerate().find(|(number, found)| **found != pattern(bytes, *number));
    assert!(wrong.is_none(), "upload {:?}", wrong.map(|(number, _)| number));
}

#[test]
fn uploads_of_one_pause_go_to_their_own_places_the_last_one_winning() {
    let Some(mut gpu) = gpu("uploads that travel together") else { return };
    let to = room(&mut gpu, 1000);
    for number in 0..1000 {
        gpu.upload(to.after(number), &[1]).expect("it fits");
    }
    for number in (0..1000).rev() {
        gpu.upload(to.after(number), &[(number % 256) as u8]).expect("it fits");
    }
    let mut found = vec![0; 1000];
    gpu.download(to, &mut found).expect("it fits");
    assert!(found.iter().enumerate().all(|(number, byte)| *byte == (number % 256) as u8));
}

#[test]
fn a_fetch_has_the_bytes_of_its_moment() {
    let Some(mut gpu) = gpu("fetches") else { return };
    let at = room(&mut gpu, 100_000);
    let mut fetches = Vec::new();
    // More than there are slots, and some that are too long for one.
    for number in 0..100 {
        let bytes = if number % 10 == 3 { 100_000 } else { 4 + number };
        gpu.upload(at, &pattern(bytes, number)).expect("it fits");
        fetches.push((number, bytes, gpu.fetch(at, bytes).expect("it fits")));
    }
    let under_way = fetches.iter().filter(|(.., fetch)| matches!(fetch, Fetch::UnderWay(_))).count();
    assert!(under_way > 30, "{under_way}");
    for (number, bytes, fetch) in fetches.into_iter().rev() {
        assert!(gpu.take(fetch).expect("it is under way") == pattern(bytes, number), "{number}");
    }
    let error = gpu.take(Fetch::UnderWay(0)).expect_err("it was taken").to_string();
    assert_eq!(error, "fetch 0 is not under way");
}

#[test]
fn a_recording_does_the_same_each_time_and_nothing_before() {
    let Some(mut gpu) = gpu("recordings") else { return };
    let (a, b) = (room(&mut gpu, 4096), room(&mut gpu, 4096));
    gpu.upload(a, &pattern(4096, 1)).expect("it fits");
    gpu.upload(b, &[7; 4096]).expect("it fits");
    let commands = vec![
        Command::Discard { at: b, bytes: 4096 },
        Command::Copy { from: a, to: b, bytes: 4096 },
        Command::Zero { at: b.after(1), bytes: 2 },
    ];
    let recording = gpu.record(commands).expect("it can be recorded");
    let mut found = vec![0; 4096];
    gpu.download(b, &mut found).expect("it fits");
    assert!(found == [7; 4096], "recording runs nothing");
    for seed in [2, 3] {
        let mut expected = pattern(4096, seed);
        gpu.upload(a, &expected).expect("it fits");
        gpu.replay(recording).expect("it was recorded");
        gpu.download(b, &mut found).expect("it fits");
        expected[1..3].fill(0);
        assert!(found == expected, "{seed}");
    }
    gpu.forget(recording);
    assert_eq!(gpu.replay(recording).expect_err("gone").to_string(), "recording 0 was not made");
    let empty = gpu.record(vec![Command::Discard { at: b, bytes: 1 }]).expect("nothing can be recorded too");
    gpu.replay(empty).expect("nothing");
    gpu.synchronize().expect("all is well");
}

#[test]
fn recordings_succeed_while_other_threads_open_and_close_the_gpu() {
    let Some(mut gpu) = gpu("recordings beside other threads") else { return };
    let (a, b) = (room(&mut gpu, 4096), room(&mut gpu, 4096));
    let open_and_close = || (0..12).for_each(|_| drop(crate::driver::gpu("a GPU of another thread")));
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..3).map(|_| scope.spawn(open_and_close)).collect();
        let mut n_recordings = 0;
        while n_recordings < 20 || others.iter().any(|other| !other.is_finished()) {
            let commands = (0..1000).map(|_| Command::Copy { from: a, to: b, bytes: 4096 }).collect();
            let recording = gpu.record(commands);
            n_recordings += 1;
            gpu.forget(recording.unwrap_or_else(|error| panic!("recording {n_recordings}: {error}")));
        }
        eprintln!("{n_recordings} recordings");
    });
    gpu.synchronize().expect("all is well");
}

#[test]
fn time_passes_between_two_points() {
    let Some(mut gpu) = gpu("times") else { return };
    let at = room(&mut gpu, 256 << 20);
    let zero = Command::Zero { at, bytes: 256 << 20 };
    let mut times = [f64::INFINITY; 2];
    // The least counts: other tests use the GPU at the same time.
    for (n, least) in [(1, 0), (40, 1)].into_iter().cycle().take(20) {
        gpu.launch(&zero).expect("it fits");
        let from = gpu.mark().expect("a point");
        (0..n).for_each(|_| gpu.launch(&zero).expect("it fits"));
        let to = gpu.mark().expect("a point");
        times[least] = times[least].min(gpu.seconds(from, to).expect("both are there"));
    }
    eprintln!("zeroing 256 MiB once and 40 times: {times:?} s");
    assert!(times[0] > 1e-6 && times[1] > 10.0 * times[0] && times[1] < 10.0, "{times:?}");
}

#[test]
fn what_cannot_be_had_is_refused() {
    let Some(mut gpu) = gpu("refusals") else { return };
    let (_, total) = gpu.memory().expect("it has some");
    let wanted = usize::try_from(total).expect("64 bits") * 2;
    match gpu.allocate("too much", wanted) {
        Err(DriverError::Memory { name, bytes }) => assert_eq!((name.as_str(), bytes), ("too much", wanted)),
        other => panic!("{other:?}"),
    }
    let at = room(&mut gpu, 100);
    assert!(gpu.pointer(at).expect("it is there").is_multiple_of(256));
    for refused in [
        gpu.upload(at.after(90), &[0; 11]),
        gpu.download(at.after(100), &mut [0]),
        gpu.fetch(at, 101).map(drop),
        gpu.launch(&Command::Zero { at, bytes: 101 }),
        gpu.launch(&Command::Copy { from: at, to: at.after(60), bytes: 50 }),
    ] {
        assert!(matches!(refused, Err(DriverError::Bounds { size: 100, .. })), "{refused:?}");
    }
    gpu.free(at.allocation).expect("it is there");
    let error = gpu.upload(at, &[0]).expect_err("gone").to_string();
    assert!(error.ends_with("is not there: it was given back"), "{error}");
    assert!(gpu.free(at.allocation).is_err());
    gpu.synchronize().expect("nothing of this harms the GPU");
}
