"""A denial means the usual spellings of what it names: none of them runs unasked beside `allow *`.

Covers permissions/views.py.
"""

from pathlib import Path

import pytest

from ostinato.harness.permissions import policy
from ostinato.harness.permissions.rules import Action, Permissions

PUSHES = r"""
$(echo git) push
git -c alias.p=push p
env -S'git push'
env -S 'git push'
env --split-string='git push'
command git push
/usr/bin/git push
git  push
g\it push
'git' push
"git" "push"
sh -c 'git push'
bash -c "git push origin"
echo push | xargs git
xargs git push
echo git push | xargs -n1 sh -c
x=git; $x push
x=push; git $x
git $X
git ${X}
git "$X"
git -C . push
git --git-dir=.git push
git -p push
git --no-pager push
git push
git	push
GIT_DIR=.git git push
FOO=1 git push
env git push
env -i git push
env A=1 git push
sudo git push
nohup git push
time git push
nice -n 5 git push
timeout 5 git push
exec git push
eval git push
eval "git push"
(git push)
{ git push; }
git push &
true && git push
false || git push
git status; git push
if true; then git push; fi
! git push
while true; do git push; done
for i in 1; do git push; done
case a in a) git push;; esac
f() { git push; }; f
`git push`
echo $(git push)
echo "$(git push)"
cat <(git push)
git pu\sh
git pu""sh
git p'us'h
git config alias.p push && git p
git p
git foo
alias g='git push'; g
find . -exec git push \;
find . -name x -execdir git push {} +
python -c "import os; os.system('git push')"
python3 -c "import subprocess; subprocess.run(['git','push'])"
perl -e 'system("git push")'
ruby -e 'system "git push"'
node -e 'require("child_process").execSync("git push")'
echo 'git push' | sh
echo 'git push' | bash -s
sh <<< 'git push'
busybox sh -c 'git push'
script -c 'git push'
ssh localhost git push
watch git push
stdbuf -o0 git push
setsid git push
git.exe push
GIT push
git-push
/usr/lib/git-core/git-push
git send-pack origin
git remote-https origin
parallel git ::: push
awk 'BEGIN{system("git push")}'
sed '1e git push' x
sed -n 's/x/git push/ep' x
vim -c '!git push'
ex -c '!git push' x
tar cf /dev/null x --checkpoint=1 --checkpoint-action=exec='git push'
ssh -o ProxyCommand='git push' x
rsync -e 'git push' a b:
git submodule foreach git push
git submodule foreach 'git push'
git bisect run git push
git rebase --exec 'git push' HEAD
git rebase -x 'git push' HEAD
git filter-branch --tree-filter 'git push'
git stash; git -c core.editor='git push' commit
git -c core.sshCommand='git push' fetch
EDITOR='git push' git commit
GIT_EDITOR='git push' git commit
PAGER='git push' git log
GIT_PAGER='git push' git log
git grep -O'git push' x
man -P 'git push' ls
less +'!git push' x
make SHELL='git push'
npm exec -- git push
npx git push
uv run git push
poetry run git push
docker run x git push
flock x git push
flock x -c 'git push'
su -c 'git push'
runuser -c 'git push'
systemd-run git push
at now <<< 'git push'
gdb -ex 'shell git push'
strace git push
ltrace git push
ld.so /usr/bin/git push
/lib64/ld-linux-x86-64.so.2 /usr/bin/git push
unshare git push
chroot / git push
coproc git push
trap 'git push' EXIT
PATH=. git push
hash -p /usr/bin/git g; g push
git $'push'
git $"push"
git {push,}
git p?sh
git [p]ush
gi? push
/usr/bin/gi? push
/usr/bin/g*t push
git -- push
git --exec-path=. push
git -c x=y push
git --config-env=alias.p=X p
git @push
"""
"""Spellings of `git push`, one a line."""
WRITES = r"""
cp a secret.txt
cp -t . x/secret.txt
cp a/secret.txt .
mv a secret.txt
mv -t . a/secret.txt
tee secret.txt
echo x | tee -a secret.txt
sed -i s/a/b/ secret.txt
sed -i.bak s/a/b/ secret.txt
sed -i s/a/b/ secret*
sed 'w secret.txt' x
sed -n 's/a/b/w secret.txt' x
echo x > secret.txt
echo x >> secret.txt
echo x >| secret.txt
> secret.txt
echo x > ./secret.txt
echo x > sub/../secret.txt
cat a > 'secret.txt'
cat a > "$X"
cat a > $HOME/secret
echo x > sec*
dd if=a of=secret.txt
dd of=$X
install a secret.txt
install -m 644 a secret.txt
install a/secret.txt .
ln -sf a secret.txt
ln a secret.txt
truncate -s 0 secret.txt
touch secret.txt
rm secret.txt
rm -r .
rm -rf *
rm sec*
git checkout -- secret.txt
git restore secret.txt
git mv a secret.txt
git rm secret.txt
patch secret.txt x.diff
perl -pi -e s/a/b/ secret.txt
perl -i -pe s/a/b/ secret.txt
python -c "open('secret.txt','w')"
awk '{print > "secret.txt"}' a
sort -o secret.txt a
sort -osecret.txt a
sort --output=secret.txt a
uniq a secret.txt
curl -o secret.txt http://x
curl -O http://x/secret.txt
wget http://x/secret.txt
wget -O secret.txt http://x
tar xf a.tar secret.txt
gunzip secret.txt.gz
gzip secret.txt
rsync a secret.txt
rsync a/ .
cp -r a .
cp -r a/. .
mv a/* .
ed secret.txt
ex -sc wq secret.txt
vim secret.txt
split a secret
csplit -f secret a 1
tee $X
xargs -I{} cp a {}
echo secret.txt | xargs rm
find . -name 'secret*' -delete
find . -exec rm {} +
find . -name secret.txt -exec cp a {} \;
chmod 777 secret.txt
shred secret.txt
sponge secret.txt
base64 -d a > secret.txt
openssl enc -out secret.txt
gcc -o secret.txt a.c
diff a b > secret.txt
script secret.txt
(cd sub; cp ../a ../secret.txt)
cd sub && cp a ../secret.txt
pushd sub; cp a ../secret.txt
SECRET=secret.txt; cp a $SECRET
cp a secret\.txt
cp a sec""ret.txt
cp a ./sub/..//secret.txt
cp a {b,secret.txt}
ruff format secret.txt
dd of=secret.txt <<< x
"""
"""Commands that write to `secret.txt`, or may, one a line."""
MEANT_TO_PASS = r"""
git help push
git status
git log --grep push
echo pushed
cp a b
cp -r a b
mv a sub
rm -rf build
rm build/*.o
sed -i s/a/b/ x.py
touch x
tee x
make $X
pytest $ARGS
git commit -m 'say, how (it) is = done'
"""
UNKNOWABLE = r"""
make push
sh x.sh
ln -s /usr/bin/git g; ./g push
git checkout .
git apply x.patch
tar xf a.tar
patch -p1 < x.diff
python x.py
"""
"""What `docs/code.md` says that a denial cannot know."""


def lines(text: str) -> list[str]:
    return text.strip("\n").split("\n")


@pytest.fixture(scope="module")
def denying(tmp_path_factory: pytest.TempPathFactory) -> Permissions:
    root: Path = tmp_path_factory.mktemp("root")
    allowed = policy.given(Action.ALLOW, ["bash: *"])
    denied = policy.given(Action.DENY, ["bash: git push *", "edit: secret*"])
    return Permissions([*policy.DEFAULT, *allowed, *denied], root=str(root))


@pytest.mark.parametrize("command", [*lines(PUSHES), "git \\\npush", "bash <<E\ngit push\nE"])
def test_a_denied_command(denying: Permissions, command: str) -> None:
    assert denying.decide("bash", {"command": command}).action is not Action.ALLOW


@pytest.mark.parametrize("command", [*lines(WRITES), "cat > secret.txt <<E\nx\nE"])
def test_a_denied_edit(denying: Permissions, command: str) -> None:
    assert denying.decide("bash", {"command": command}).action is not Action.ALLOW


@pytest.mark.parametrize("command", [*lines(MEANT_TO_PASS), *lines(UNKNOWABLE)])
def test_other_commands_pass(denying: Permissions, command: str) -> None:
    assert denying.decide("bash", {"command": command}).action is Action.ALLOW
