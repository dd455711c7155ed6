# Completion of muster for fish.

function __muster_completion
    set -l tokens (commandline -opc)
    set -l current (commandline -ct)
    set -l lead (string match -r -- '^--[^=]*=' $current)
    set -lx COMP_WORDS (string join \n -- $tokens | string collect)\n"$current"
    set -lx _MUSTER_COMPLETE fish_complete
    for line in ($tokens[1] 2>/dev/null)
        set -l part (string split -m 2 \t -- $line)
        if test $part[1] = file
            for path in (__fish_complete_path $part[2])
                printf '%s%s\n' "$lead" $path
            end
        else
            printf '%s%s\t%s\n' "$lead" $part[2] $part[3]
        end
    end
end

complete --no-files --keep-order --command muster --arguments '(__muster_completion)'
