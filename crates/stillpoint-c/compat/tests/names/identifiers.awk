# The names that a preprocessed C file has at file scope: functions, variables, types, and what is in structures and enumerations. Not what
# is in functions or between parentheses, but for (*name).
BEGIN { skipped = 0; parentheses = 0 }
{
    line = $0
    while (match(line, /[A-Za-z_][A-Za-z0-9_]*|"([^"\\]|\\.)*"|'([^'\\]|\\.)*'|[0-9][A-Za-z0-9_.]*|[^ \t]/)) {
        token = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        if (skipped > 0) {
            skipped += (token == "{") - (token == "}")
        } else if (token == "{" && (last == ")" || last == "=")) {
            skipped = 1
        } else if (token == "(") {
            parentheses++
        } else if (token == ")") {
            parentheses--
        } else if (token ~ /^[A-Za-z_]/ && (parentheses == 0 || (parentheses == 1 && last == "*" && before == "("))) {
            print token
        }
        before = last
        last = token
    }
}
