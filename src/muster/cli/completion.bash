# Completion of muster for bash 4.4 and later.

_muster_completion() {
    local current=${COMP_WORDS[COMP_CWORD]} rest=$COMP_LINE words=() word
    # bash splits words at = : and @, which muster does not: join what no blank separates
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [[ ${#words[@]} -gt 0 && -n $word && $rest == "$word"* ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
        fi
        rest=${rest#*"$word"}
    done
    [[ $current == [=:@]* ]] && current=
    # the part of the last word that bash does not replace
    local last=${words[${#words[@]}-1]} kept
    [[ $last == --*=* ]] && last=${last#--*=}
    kept=${last%"$current"}

    local IFS=$'\n' kind value about replies=() has_files=
    while IFS=$'\t' read -r kind value about; do
        if [[ $kind == file ]]; then
            has_files=1
        else
            replies+=("${value#"$kept"}")
        fi
    done < <(COMP_WORDS="${words[*]}" _MUSTER_COMPLETE=bash_complete "$1" 2>/dev/null)
    COMPREPLY=("${replies[@]}")
    if [[ -n $has_files ]]; then
        if [[ ${#replies[@]} -eq 0 ]]; then
            compopt -o default  # readline completes and quotes file names
        else
            compopt -o filenames
            mapfile -t -O "${#replies[@]}" COMPREPLY < <(compgen -f -- "$current")
        fi
    elif [[ ${#replies[@]} -eq 1 && ${replies[0]} == *= ]]; then
        compopt -o nospace
    fi
}

complete -o nosort -F _muster_completion muster
