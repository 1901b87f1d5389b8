//! Files that the tools write: as root into a directory of another user, who has planted links to files of
//! root there; and what users expect of links, pipes and modes of their own.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::process::{Process, run};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;

use crate::support::{LIMIT, Needs, pmdscope, trial};

/// A user who has nothing.
const STRANGER: u32 = 1234;
const SECRET: &str = "of root alone\n";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("links_of_another_user_lead_root_nowhere", Needs::Apps, planted_links),
        trial("directories_of_another_user_lead_root_nowhere", Needs::Apps, planted_directories),
        trial("a_pipe_of_another_user_gets_no_packets", Needs::Apps, planted_pipe),
        trial("files_are_for_their_owner_unless_asked_otherwise", Needs::Apps, modes),
        trial("own_links_pipes_and_descriptors_are_written", Needs::Apps, own),
    ]
}

/// A pcap file with one packet.
pub(crate) fn packet_file(scratch: &Scratch) -> Result<String> {
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1, 1_700_000_000, 0, 14, 14];
    let mut file = words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    file.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    let path = scratch.path("in.pcap");
    fs::write(&path, file)?;
    Ok(path.display().to_string())
}

/// A directory of another user, and a file of root that links in it lead to.
struct Hostile {
    dir: PathBuf,
    secret: PathBuf,
}

impl Hostile {
    fn new(scratch: &Scratch) -> Result<Self> {
        // The other user must get there.
        fs::set_permissions(scratch.dir(), Permissions::from_mode(0o755))?;
        let (dir, secret) = (scratch.path("theirs"), scratch.path("secret"));
        fs::create_dir(&dir)?;
        chown(&dir, Some(STRANGER), Some(STRANGER))?;
        fs::write(&secret, SECRET)?;
        fs::set_permissions(&secret, Permissions::from_mode(0o600))?;
        Ok(Self { dir, secret })
    }

    /// Plants a link of the other user.
    fn plant(&self, name: &str, target: &Path) -> Result<String> {
        let link = self.dir.join(name);
        symlink(target, &link)?;
        std::os::unix::fs::lchown(&link, Some(STRANGER), Some(STRANGER))?;
        Ok(link.display().to_string())
    }

    fn check(&self, command: &[&str]) -> Result<()> {
        let command = command.join(" ");
        let content = fs::read_to_string(&self.secret).context("the file of root is gone")?;
        let found = fs::metadata(&self.secret)?;
        ensure!(content == SECRET, "{command} has changed a file of root: {content:?}");
        ensure!(found.mode() & 0o7777 == 0o600 && found.uid() == 0, "{command} has opened it");
        Ok(())
    }
}

/// Runs a command, which must end in order, and returns its code and what it said.
fn outcome(scratch: &Scratch, args: &[&str]) -> Result<(i32, String)> {
    let mut command = Command::new(programs::pmdscope()?);
    command.env("RUNTIME_DIRECTORY", scratch.path("none"));
    let (code, out, err) = run(command.args(args), scratch.dir(), LIMIT)?;
    ensure!([0, 1, 2].contains(&code), "pmdscope {} ended with {code}: {err}", args.join(" "));
    Ok((code, out + &err))
}

fn planted_links(scratch: &Scratch) -> Result<()> {
    let hostile = Hostile::new(scratch)?;
    let input = packet_file(scratch)?;
    let part = |name: &str| hostile.plant(&format!("{name}.part"), &hostile.secret);
    let (named, begun) = (hostile.plant("named.pcap", &hostile.secret)?, part("begun.pcap")?);
    let begun = begun.trim_end_matches(".part");
    // What a link leads to need not exist.
    let absent = hostile.plant("absent.pcap", &scratch.path("made"))?;
    let dangling = hostile.plant("dangling.pcap.part", &scratch.path("made"))?;
    let dangling = dangling.trim_end_matches(".part");
    let rotated = part("rotated.pcap")?;
    let rotated = rotated.trim_end_matches(".part");
    let baseline = part("baseline.json")?;
    let baseline = baseline.trim_end_matches(".part");
    hostile.plant("baseline.json.new", &hostile.secret)?;
    let recording = part("recording.jsonl.zst")?;
    let recording = recording.trim_end_matches(".part");
    let bundle = hostile.plant("bundle.tar.zst", &hostile.secret)?;
    let commands: [&[&str]; 9] = [
        &["capture", "-r", &input, "-w", &named],
        &["capture", "-r", &input, "-w", &named, "--in-place"],
        &["capture", "-r", &input, "-w", begun],
        &["capture", "-r", &input, "-w", &absent],
        &["capture", "-r", &input, "-w", dangling],
        &["capture", "-r", &input, "-C", "1", "-w", rotated],
        &["doctor", "--save", baseline],
        &["record", "--for", "1", "-q", "-w", recording],
        &["bundle", "--for", "1s", "-q", "-o", &bundle],
    ];
    for command in commands {
        let (code, said) = outcome(scratch, command)?;
        hostile.check(command)?;
        ensure!(!scratch.path("made").exists(), "{command:?} has made a file: {said}");
        // A baseline replaces what has its name; a recording needs an app.
        let replaces = ["doctor", "record"].contains(&command[0]);
        ensure!(code == 1 || replaces, "{command:?} ended with {code}: {said}");
        if command[0] == "capture" {
            ensure!(said.contains("symbolic link"), "{command:?}: {said}");
        }
    }
    Ok(())
}

fn planted_directories(scratch: &Scratch) -> Result<()> {
    let hostile = Hostile::new(scratch)?;
    let input = packet_file(scratch)?;
    let inner = scratch.path("inner");
    fs::create_dir(&inner)?;
    let link = hostile.plant("link", &inner)?;
    let below = |name: &str| format!("{link}/{name}");
    let (capture, recording, bundle) = (below("x.pcap"), below("x/"), below("x.tar.zst"));
    let commands: [&[&str]; 4] = [
        &["capture", "-r", &input, "-w", &capture],
        &["record", "--always", "--for", "1", "-q", "-w", &recording],
        &["record", "--always", "--for", "1", "-q", "-w", &link],
        &["bundle", "--for", "1s", "-q", "-o", &bundle],
    ];
    for command in commands {
        let (code, said) = outcome(scratch, command)?;
        ensure!(code == 1, "{command:?} ended with {code}: {said}");
        let made = fs::read_dir(&inner)?.count();
        ensure!(made == 0, "{command:?} has made {made} files behind a link: {said}");
    }
    // Without links, root may write there, and what it writes is its own.
    let plain = hostile.dir.join("plain.pcap").display().to_string();
    outcome(scratch, &["capture", "-r", &input, "-w", &plain])?;
    let written = fs::metadata(&plain)?;
    ensure!((written.uid(), written.mode() & 0o7777) == (0, 0o600), "{written:?}");
    Ok(())
}

fn planted_pipe(scratch: &Scratch) -> Result<()> {
    let hostile = Hostile::new(scratch)?;
    let input = packet_file(scratch)?;
    // As /tmp.
    fs::set_permissions(scratch.dir(), Permissions::from_mode(0o1777))?;
    let pipe = scratch.path("pipe.pcap");
    let made = Command::new("mkfifo").arg(&pipe).status()?;
    ensure!(made.success(), "mkfifo failed");
    chown(&pipe, Some(STRANGER), Some(STRANGER))?;
    let path = pipe.display().to_string();
    let (code, said) = outcome(scratch, &["capture", "-r", &input, "-w", &path])?;
    ensure!(code == 1 && said.contains("another user"), "ended with {code}: {said}");
    hostile.check(&["capture"])
}

fn modes(scratch: &Scratch) -> Result<()> {
    let input = packet_file(scratch)?;
    let mode =
        |name: &str| Ok::<_, anyhow::Error>(fs::metadata(scratch.path(name))?.mode() & 0o777);
    let write = |name: &str, more: &[&str]| -> Result<u32> {
        let path = scratch.path(name).display().to_string();
        let args = [&["capture", "-r", &input, "-w", &path][..], more].concat();
        pmdscope(scratch, &args, &[0])?;
        mode(name)
    };
    for (name, more, expected) in [
        ("usual.pcap", &[][..], 0o600),
        ("in-place.pcap", &["--in-place"][..], 0o600),
        ("group.pcap", &["--file-mode", "640"][..], 0o640),
        ("all.pcap", &["--file-mode", "0664", "--in-place"][..], 0o664),
    ] {
        let found = write(name, more)?;
        ensure!(found == expected, "{name} has mode {found:o}");
    }
    let baseline = scratch.path("baseline.json").display().to_string();
    pmdscope(scratch, &["doctor", "--save", &baseline], &[0, 1])?;
    let found = mode("baseline.json")?;
    ensure!(found == 0o600, "a baseline has mode {found:o}");
    pmdscope(scratch, &["capture", "-r", &input, "-w", "x", "--file-mode", "700"], &[2])?;
    Ok(())
}

fn own(scratch: &Scratch) -> Result<()> {
    let input = packet_file(scratch)?;
    let of = |name: &str| scratch.path(name).display().to_string();
    let whole = of("whole.pcap");
    pmdscope(scratch, &["capture", "-r", &input, "-w", &whole], &[0])?;
    let expected = fs::read(&whole)?;
    // A link of this user, in a directory that nobody else can write.
    symlink("target.pcap", scratch.path("link.pcap"))?;
    symlink(".", scratch.path("here"))?;
    let path = of("here/link.pcap");
    for more in [&[][..], &["--in-place"][..]] {
        let args = [&["capture", "-r", &input, "-w", &path][..], more].concat();
        pmdscope(scratch, &args, &[0])?;
        ensure!(fs::read(scratch.path("target.pcap"))? == expected, "the target has other bytes");
        ensure!(fs::symlink_metadata(&path)?.is_symlink(), "the link was replaced");
    }
    let made = Command::new("mkfifo").arg(scratch.path("pipe.pcap")).status()?;
    ensure!(made.success(), "mkfifo failed");
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["capture", "-q", "-r", &input, "-w", &of("pipe.pcap")]);
    let mut writer = Process::spawn("pipe", &mut command, scratch.dir())?;
    let mut read = Vec::new();
    File::open(scratch.path("pipe.pcap"))?.read_to_end(&mut read)?;
    writer.finish(LIMIT)?;
    ensure!(read == expected, "{} bytes came through the pipe", read.len());
    let script = "\"$0\" capture -q -r \"$1\" --pcap -w /dev/stdout | cat > \"$2\"";
    let piped = of("piped.pcap");
    let program = programs::pmdscope()?;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(program).args([&input, &piped]);
    let (code, _, said) = run(&mut shell, scratch.dir(), LIMIT)?;
    ensure!(code == 0 && fs::read(&piped)? == expected, "/dev/stdout: {code}: {said}");
    Ok(())
}
