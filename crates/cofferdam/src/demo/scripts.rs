//! What the three tasks of the demonstration do: plain `sh` and `git`, no network.

/// The program of the throwaway repository; its sum is wrong.
pub(super) const CALCULATOR: &str = "\
#!/bin/sh
# Adds two numbers.
echo $(($1 - $2))
";

/// The check that decides.
pub(super) const CHECK: &str = "\
#!/bin/sh
result=$(sh ./add.sh 19 23)
echo \"19 + 23 = $result\"
test \"$result\" = 42
";

/// Makes the repository; runs in its empty directory.
pub(super) const MAKE_REPOSITORY: &str = "\
set -e
git init -q -b main --template= .
printf '%s' \"$CALCULATOR\" >add.sh
printf '%s' \"$CHECK\" >check.sh
git add -A
git -c user.name=Demo -c user.email=demo@example.org -c commit.gpgsign=false commit -q -m 'Add a calculator'
";

/// Repairs the sum, and says why in a commit.
pub(super) const GOOD: &str = "\
set -e
sed -i 's/\\$1 - \\$2/$1 + $2/' add.sh
printf 'add.sh prints the sum of its two arguments.\\n' >README
git add -A
git -c user.name=Worker -c user.email=worker@example.org -c commit.gpgsign=false commit -q -m 'Add instead of subtracting'
";

/// Tries to leave by four ways. Whether one is open is judged outside, not by what this says.
pub(super) const ESCAPE: &str = "\
try() {
    way=$1
    shift
    if \"$@\" >>took.txt 2>/dev/null; then echo \"open:   $way\"; else echo \"closed: $way\"; fi
}
plant() { mkdir -p \"$(dirname \"$1\")\" && printf '#!/bin/sh\\ntouch \"%s\"\\n' \"$OUTSIDE_PATH\" >\"$1\" && chmod +x \"$1\"; }
write() { echo here >\"$1\"; }
try 'read a secret of the user' cat \"$LOOT_PATH\"
try 'write outside of the tree' write \"$OUTSIDE_PATH\"
try 'connect to a port of the host' git ls-remote \"git://127.0.0.1:$HOST_PORT/loot\"
try 'plant a hook for the next commit' plant \"$REPOSITORY/.git/hooks/pre-commit\"
cat took.txt
exit 0
";

/// Changes something, breaks the sum further, and claims success.
pub(super) const BROKEN: &str = "\
set -e
sed -i 's/\\$1 - \\$2/$1 * $2/' add.sh
echo 'all tests pass'
";
