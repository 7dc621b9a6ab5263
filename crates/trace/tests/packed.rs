//! Compressed traces that are cut off: what is before the cut is read.

use terrace_trace::{BadInput, ReadOptions, Reader, TraceError};

/// The bug: the decoder of zstd holds back as many bytes as its window, so of a file that is cut
/// off within the first window nothing was read, and it was called empty.
#[test]
fn of_a_compressed_file_that_is_cut_off_all_before_the_cut_is_read() {
    let mut text = String::new();
    let mut random = fastrand::Rng::with_seed(1);
    for at in 0..60_000 {
        text += &format!("{at},R,{},8192,{}\n", random.u64(..1 << 40), random.u32(..9));
    }
    for tool in ["zstd", "gzip", "xz"] {
        let Some(packed) = packed_by(tool, text.as_bytes()) else { continue };
        let mut least = 0;
        for tenth in [2, 5, 8, 9] {
            let cut = packed[..packed.len() * tenth / 10].to_vec();
            let options = ReadOptions { bad_input: BadInput::Shorten, ..ReadOptions::default() };
            let mut reader = Reader::from_bytes(tool, cut.clone(), &options).expect("told");
            let read = reader.by_ref().inspect(|request| assert!(request.is_ok())).count();
            // Of what was unpacked, at most the block that the cut is in is lost: 128 KiB of zstd,
            // and for xz, which has a block of 2 MiB here, what its decoder works at.
            let lost = 60_000 * tenth / 10 - read.min(60_000 * tenth / 10);
            assert!(tool == "xz" || lost < 6_000, "{tool} {tenth}: {read}");
            assert!(read >= least, "{tool} {tenth}: {read} after {least}");
            least = read;
            assert_eq!(reader.tally().requests, read as u64);
            let broken = reader.tally().broken_off.as_ref().expect("cut off").to_string();
            assert!(broken.contains("damaged or cut off after"), "{broken}");
            // Who refuses bad input is told, behind the same requests.
            let strict = Reader::from_bytes(tool, cut, &ReadOptions::default()).expect("told");
            assert_eq!(strict.filter(Result::is_ok).count(), read);
        }
        // Bytes of which nothing can be unpacked are not called empty.
        let options = ReadOptions { bad_input: BadInput::Shorten, ..ReadOptions::default() };
        let none = Reader::from_bytes(tool, packed[..20].to_vec(), &options).map(|_| ());
        assert!(matches!(none, Err(TraceError::Packed { .. })), "{tool}: {none:?}");
    }
}

/// `bytes` as `tool` compresses them; none where it is not installed.
fn packed_by(tool: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut command = Command::new(tool);
    command.arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut input = child.stdin.take()?;
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().ok()?;
    writer.join().ok()?.ok()?;
    output.status.success().then_some(output.stdout)
}
