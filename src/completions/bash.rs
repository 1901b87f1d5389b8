//! Completion in bash, which splits words at colons.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap_complete::env::{self, EnvCompleter};

/// The script. Bash splits `fwd:0` and `--app=fwd` into three words each, and replaces only the last one: the
/// words are joined again, and candidates lose what stands before the last one. Candidates are read line by
/// line, which expands nothing in them; names of files are quoted by bash when it inserts them. If there is
/// no candidate, bash completes files.
const SCRIPT: &str = r#"_pmdscope() {
    local words=() word rest=${COMP_LINE:0:COMP_POINT} number stem= breaks candidate
    for ((number = 0; number <= COMP_CWORD; number++)); do
        word=${COMP_WORDS[number]}
        if [[ $number -eq 0 || $rest == [[:space:]]* ]]; then
            rest=${rest#"${rest%%[![:space:]]*}"}
            words+=("")
        fi
        # The last word ends at the cursor.
        [[ $number -eq $COMP_CWORD ]] && word=$rest
        words[${#words[@]} - 1]+=$word
        rest=${rest#"$word"}
    done
    word=${words[${#words[@]} - 1]}
    breaks=${COMP_WORDBREAKS//[^:=]/}
    [[ -n $breaks ]] && stem=${word%"${word##*[$breaks]}"}
    COMPREPLY=()
    while IFS= read -r candidate; do
        [[ -n $candidate ]] || continue
        COMPREPLY+=("${candidate#"$stem"}")
        [[ -e $candidate ]] && compopt -o filenames
    done <<<"$(_CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((${#words[@]} - 1)) \
        VARIABLE=bash COMPLETER -- "${words[@]}" 2>/dev/null)"
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:=/] ]] && compopt -o nospace
    return 0
}
complete -o bashdefault -o default -o nosort -F _pmdscope COMMAND 2>/dev/null ||
    complete -o bashdefault -o default -F _pmdscope COMMAND
"#;

/// As [`env::Bash`], with another script.
pub(super) struct Bash;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        env::Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        env::Bash.is(name)
    }

    fn write_registration(
        &self,
        variable: &str,
        _name: &str,
        command: &str,
        completer: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
        let script = SCRIPT.replace("VARIABLE", variable).replace("COMPLETER", &quoted(completer));
        out.write_all(script.replace("COMMAND", &quoted(command)).as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        words: Vec<OsString>,
        directory: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        env::Bash.write_complete(command, words, directory, out)
    }
}
