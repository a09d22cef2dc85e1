//! Puts what C, C++ and Fortran programs need below a prefix: libraries, header, Fortran module, pkg-config, manual.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::step;

/// What is asked for on the command line.
struct SdkOptions {
    prefix: PathBuf,
    /// Below the prefix; Debian's and Red Hat's differ.
    libdir: PathBuf,
    /// Where the libraries are built already.
    built: Option<PathBuf>,
}

/// `PREFIX [--libdir lib64] [--built DIR]`
pub fn install(args: &[String]) -> Result<()> {
    let wish = SdkOptions::read(args)?;
    let built = match &wish.built {
        Some(dir) => dir.clone(),
        None => {
            step::cargo(&["build", "--locked", "--release", "-p", "rms-ffi", "-p", "rms-malleable"])?;
            step::target()?.join("release")
        }
    };
    let sources = step::root().join("rms-ffi");
    let place = Place::make(&wish)?;
    place.shared(&built, "librms.so")?;
    place.shared(&built, "librms-malleable.so")?;
    place.copy(&step::root().join("malleable/include/rms_malleable.h"), &place.include)?;
    place.archive(&built.join("librms.a"), &sources.join("include/rms.h"))?;
    place.copy(&sources.join("include/rms.h"), &place.include)?;
    place.copy(&sources.join("fortran/rms.f90"), &place.include)?;
    for name in ["rms.pc", "rms-static.pc"] {
        place.pkg_config(&sources.join(format!("{name}.in")), name)?;
    }
    place.manual(&sources.join("man/rms.3"), &sources.join("include/rms.h"))?;
    println!("   the SDK is below {}", wish.prefix.display());
    Ok(())
}

impl SdkOptions {
    fn read(args: &[String]) -> Result<SdkOptions> {
        let mut words = args.iter();
        let (mut prefix, mut libdir, mut built) = (None, PathBuf::from("lib"), None);
        while let Some(word) = words.next() {
            let mut value = || words.next().map(PathBuf::from).with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--libdir" => libdir = value()?,
                "--built" => built = Some(std::path::absolute(value()?)?),
                flag if flag.starts_with('-') => bail!("install-sdk has no flag {flag}"),
                // The tools are started in the root of the project.
                dir => prefix = Some(std::path::absolute(dir)?),
            }
        }
        let prefix = prefix.context("install-sdk needs a directory, such as /usr/local")?;
        if libdir.is_absolute() {
            bail!("--libdir is below the prefix, such as lib64");
        }
        Ok(SdkOptions { prefix, libdir, built })
    }
}

/// The directories that files go to.
struct Place {
    libdir: PathBuf,
    lib: PathBuf,
    include: PathBuf,
    manual: PathBuf,
}

impl Place {
    fn make(wish: &SdkOptions) -> Result<Place> {
        let place = Place {
            libdir: wish.libdir.clone(),
            lib: wish.prefix.join(&wish.libdir),
            include: wish.prefix.join("include"),
            manual: wish.prefix.join("share/man/man3"),
        };
        for dir in [&place.lib.join("pkgconfig"), &place.include, &place.manual] {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        Ok(place)
    }

    fn copy(&self, file: &Path, dir: &Path) -> Result<()> {
        let name = file.file_name().context("a file has a name")?;
        replace(&dir.join(name), |draft| fs::copy(file, draft).map(drop))
            .with_context(|| format!("cannot copy {}", file.display()))
    }

    /// Under its whole version; the loader looks for the name with the part that programs depend on, the linker for the one
    /// without.
    fn shared(&self, built: &Path, short: &str) -> Result<()> {
        let whole = format!("{short}.{VERSION}");
        let compatible = format!("{short}.{}", compatible(VERSION));
        replace(&self.lib.join(&whole), |draft| fs::copy(built.join(short), draft).map(drop))
            .with_context(|| format!("cannot copy {short} from {}; is it built?", built.display()))?;
        for (name, to) in [(&compatible, &whole), (&short.to_owned(), &compatible)] {
            replace(&self.lib.join(name), |draft| symlink(to, draft)).with_context(|| format!("cannot link {name}"))?;
        }
        Ok(())
    }

    /// One object in which only the functions of the header can be seen. As rustc writes it, the archive shows Rust's own
    /// library, too, and could not be linked beside another one that does.
    fn archive(&self, built: &Path, header: &Path) -> Result<()> {
        let scratch = self.lib.join(format!(".librms.{}", std::process::id()));
        fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
        let made = self.archive_in(&scratch, built, header);
        fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
        made
    }

    fn archive_in(&self, scratch: &Path, built: &Path, header: &Path) -> Result<()> {
        let [whole, shown, archive] = ["whole.o", "rms.o", "librms.a"].map(|name| scratch.join(name));
        let functions = functions(&fs::read_to_string(header).context("cannot read the header")?);
        let wanted: Vec<String> = functions.iter().map(|name| format!("--undefined={name}")).collect();
        let mut link = vec!["-r", "--gc-sections", "-o", utf8(&whole)?];
        link.extend(wanted.iter().map(String::as_str));
        link.push(utf8(built)?);
        step::command("ld", &link, &[]).context("binutils are needed")?;
        // Rust's own library carries intermediate code, which is nonsense once it is joined.
        let hide = ["--wildcard", "--keep-global-symbol=rms_*", "--strip-debug", "-R", ".llvmbc", "-R", ".llvmcmd"];
        step::command("objcopy", &[&hide[..], &[utf8(&whole)?, utf8(&shown)?]].concat(), &[])?;
        step::command("ar", &["rcs", utf8(&archive)?, utf8(&shown)?], &[])?;
        self.copy(&archive, &self.lib)
    }

    /// The prefix is said relative to the file, so that the whole can be moved.
    fn pkg_config(&self, template: &Path, name: &str) -> Result<()> {
        let up = Path::new("pkgconfig").join(&self.libdir).components().map(|_| "..").collect::<Vec<&str>>().join("/");
        let text = fs::read_to_string(template).with_context(|| format!("cannot read {}", template.display()))?;
        let text = text.replace("@PREFIX@", &format!("${{pcfiledir}}/{up}"));
        let text = text.replace("@LIBDIR@", utf8(&self.libdir)?).replace("@VERSION@", VERSION);
        let path = self.lib.join("pkgconfig").join(name);
        replace(&path, |draft| fs::write(draft, &text)).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The page, and one for each function that leads to it.
    fn manual(&self, page: &Path, header: &Path) -> Result<()> {
        self.copy(page, &self.manual)?;
        for name in functions(&fs::read_to_string(header).context("cannot read the header")?) {
            let path = self.manual.join(format!("{name}.3"));
            replace(&path, |draft| fs::write(draft, ".so man3/rms.3\n"))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// Replaces the file atomically: a running program keeps the library that it has loaded, and no reader sees half a file.
fn replace(path: &Path, write: impl FnOnce(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{}", std::process::id()));
    write(&draft)?;
    fs::rename(&draft, path)
}

/// The functions that a header declares.
fn functions(header: &str) -> Vec<String> {
    let declarations = header.lines().filter(|line| !line.starts_with([' ', '/', '#', '}']) && !line.ends_with('{'));
    let names = declarations.filter_map(|line| line.split_once('(')).map(|(before, _)| before);
    let names = names.filter_map(|before| before.rsplit([' ', '*']).next());
    names.filter(|name| name.starts_with("rms_")).map(str::to_owned).collect()
}

/// The part of a version that programs depend on, as in the soname that rms-ffi/build.rs gives.
fn compatible(version: &str) -> String {
    let mut parts = version.split('.');
    match (parts.next().unwrap_or_default(), parts.next().unwrap_or_default()) {
        ("0", minor) => format!("0.{minor}"),
        (major, _) => major.to_owned(),
    }
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

/// All crates of the workspace have the same.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_a_header_are_found() {
        let header = "typedef void (*rms_event_callback)(int);\nint rms_close(struct rms_session *session);\n\
                      template <typename T> inline T rms_init() {\nconst char *rms_version(void);\n// calls rms_none()\nint rms_nodes(struct rms_session *session,\n              \
                      size_t capacity);\n";
        assert_eq!(functions(header), ["rms_close", "rms_version", "rms_nodes"]);
    }

    #[test]
    fn directories_are_those_of_the_caller_wherever_the_tools_start() {
        let options = SdkOptions::read(&["out", "--built", "made"].map(str::to_owned)).expect("options");
        let here = std::env::current_dir().expect("a directory");
        assert_eq!((options.prefix, options.built), (here.join("out"), Some(here.join("made"))));
    }

    #[test]
    fn a_version_says_what_programs_depend_on() {
        assert_eq!((compatible("0.1.7"), compatible("2.1.7")), ("0.1".to_owned(), "2".to_owned()));
    }
}
