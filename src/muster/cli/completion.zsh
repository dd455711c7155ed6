#compdef muster
# Completion of muster for zsh.

_muster_completion() {
    local -a plain named described lines
    local line kind value about has_files
    lines=("${(@f)$(COMP_WORDS="${(pj:\n:)words[1,CURRENT-1]}"$'\n'"$PREFIX" _MUSTER_COMPLETE=zsh_complete \
        ${(Q)words[1]} 2>/dev/null)}")
    [[ $PREFIX == --*=* ]] && compset -P '*='
    for line in $lines; do
        kind=${line%%$'\t'*}
        value=${${line#*$'\t'}%%$'\t'*}
        about=${line##*$'\t'}
        if [[ $kind == file ]]; then
            has_files=1
        elif [[ $value == *= ]]; then
            named+=("$value")
        elif [[ -n $about ]]; then
            described+=("${value//:/\\:}:$about")
        else
            plain+=("$value")
        fi
    done
    (( $#described )) && _describe -V 'muster' described
    (( $#plain )) && compadd -V muster-values -a plain
    (( $#named )) && compadd -S '' -V muster-names -a named
    [[ -n $has_files ]] && _files
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _muster_completion "$@"
else
    compdef _muster_completion muster
fi
