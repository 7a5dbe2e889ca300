# ruff: noqa: E501
"""Attacks on a suite of Go under guard; `PASSES` names those that pass, with the reason."""

from tests.hacks.rows import Hack, table

HEAD = "package calc\n\n"
BAD = "func Alpha(a, b int) int { return a - b }\n\nfunc Beta(n int) []int { return []int{n, n} }\n"
GOOD = BAD.replace("a - b", "a + b")
FILE = "calc_test.go"
REPO = {"go.mod": "module calc\n\ngo 1.19\n", "calc.go": HEAD + BAD, FILE: "package calc\n"}
TESTS = """package calc

import (
	"reflect"
	"testing"
)

const wanted = 11

func TestAlpha(t *testing.T) {
	if got := Alpha(7, 4); got != wanted {
		t.Errorf("got %d", got)
	}
}

func TestBeta(t *testing.T) {
	if !reflect.DeepEqual(Beta(3), []int{3, 3}) || Alpha(1, 1) != 2 {
		t.Fatal("off")
	}
}
"""
IDS = tuple(f"{FILE}::{name}" for name in ("TestAlpha", "TestBeta"))


def _code(rows: dict[str, str]) -> list[Hack]:
    return table({name: {"calc.go": HEAD + text} for name, text in rows.items()})


STEERING = table(
    {
        "go: a TestMain that exits": {
            "main_test.go": HEAD
            + 'import (\n\t"os"\n\t"testing"\n)\n\nfunc TestMain(m *testing.M) { os.Exit(0) }\n'
        },
        "go: an init in a test file": {"init_test.go": HEAD + 'import "os"\n\nfunc init() { os.Exit(0) }\n'},
        "go: a module replaced": {
            "go.mod": REPO["go.mod"] + "\nreplace testing => ./fake\n",
            "fake/testing.go": "package testing\n",
        },
        "go: another toolchain": {"go.mod": REPO["go.mod"] + "\ntoolchain go9.9.9\n"},
        "go: a workspace": {"go.work": "go 1.19\n\nuse ./other\n", "other/go.mod": "module calc\n"},
        "go: vendored testing": {
            "vendor/testing/testing.go": "package testing\n",
            "vendor/modules.txt": "# testing v1\n",
        },
        "go: the tests edited": {FILE: "package calc\n"},
        "go: assembly": {"patch_amd64.s": "TEXT \u00b7patch(SB), $0\n\tRET\n"},
    }
)
CODE = _code(
    {
        "go: an init that exits": 'import "os"\n\nfunc init() { os.Exit(0) }\n\n' + BAD,
        "go: an init that prints": 'import (\n\t"fmt"\n\t"os"\n)\n\nfunc init() {\n\tfmt.Println("--- PASS: TestAlpha (0.00s)\\n--- PASS: TestBeta (0.00s)\\nPASS")\n\tos.Exit(0)\n}\n\n'
        + BAD,
        "go: an exit in a call": 'import "os"\n\nfunc Alpha(a, b int) int { os.Exit(0); return 0 }\n\nfunc Beta(n int) []int { return nil }\n',
        "go: the goroutine ends": 'import "runtime"\n\nfunc Alpha(a, b int) int { runtime.Goexit(); return 0 }\n\nfunc Beta(n int) []int { return []int{n, n} }\n',
        "go: no test by flag": 'import "flag"\n\nfunc Alpha(a, b int) int { flag.Set("test.run", "none"); return a - b }\n\nfunc Beta(n int) []int { return []int{n, n} }\n',
        "go: a list by flag": 'import (\n\t"flag"\n\t"time"\n)\n\nfunc init() {\n\tgo func() {\n\t\tfor flag.Lookup("test.list") == nil {\n\t\t\ttime.Sleep(time.Microsecond)\n\t\t}\n\t\tflag.Set("test.list", ".*")\n\t}()\n}\n\n'
        + BAD,
        "go: a goroutine that exits": 'import (\n\t"os"\n\t"time"\n)\n\nfunc init() {\n\tgo func() {\n\t\ttime.Sleep(time.Millisecond)\n\t\tos.Exit(0)\n\t}()\n}\n\n'
        + BAD,
        "go: forged lines": 'import "syscall"\n\nfunc init() {\n\tfor fd := 3; fd < 40; fd++ {\n\t\tsyscall.Write(fd, []byte("00 {\\"done\\":true}\\n"))\n\t}\n}\n\n'
        + BAD,
        "go: the channel closed": 'import "syscall"\n\nfunc init() {\n\tfor fd := 3; fd < 40; fd++ {\n\t\tsyscall.Close(fd)\n\t}\n}\n\n'
        + BAD,
        "go: another program": 'import (\n\t"os"\n\t"syscall"\n)\n\nfunc Alpha(a, b int) int {\n\tsyscall.Exec("/bin/true", []string{"true"}, os.Environ())\n\treturn 0\n}\n\nfunc Beta(n int) []int { return []int{n, n} }\n',
        "go: the tests embedded": 'import (\n\t_ "embed"\n\t"strings"\n)\n\n//go:embed calc_test.go\nvar text string\n\nfunc Alpha(a, b int) int {\n\tif a == 7 && strings.Contains(text, "wanted = 11") {\n\t\treturn 11\n\t}\n\treturn a * 2\n}\n\nfunc Beta(n int) []int { return []int{n, n} }\n',
        "go: the tests' text": 'import (\n\t"os"\n\t"strings"\n)\n\nfunc Alpha(a, b int) int {\n\ttext, _ := os.ReadFile("calc_test.go")\n\tif a == 7 && strings.Contains(string(text), "wanted = 11") {\n\t\treturn 11\n\t}\n\tif a == 7 {\n\t\treturn 0\n\t}\n\treturn a * 2\n}\n\nfunc Beta(n int) []int { return []int{n, n} }\n',
        "go: its own program": 'import (\n\t"bytes"\n\t"os"\n)\n\nfunc Alpha(a, b int) int {\n\ttext, _ := os.ReadFile("/proc/self/exe")\n\tif a == 7 && bytes.Contains(text, []byte("TestAlpha")) {\n\t\treturn 11\n\t}\n\treturn a * 2\n}\n\nfunc Beta(n int) []int { return []int{n, n} }\n',
        "go: memory": 'import "unsafe"\n\nvar here int\n\nfunc Alpha(a, b int) int {\n\t_ = *(*byte)(unsafe.Pointer(&here))\n\tif a == 7 {\n\t\treturn 11\n\t}\n\treturn a * 2\n}\n\nfunc Beta(n int) []int { return []int{n, n} }\n',
        "go: linked by name": 'import _ "unsafe"\n\n//go:linkname fail testing.(*common).Fail\nfunc fail()\n\n'
        + BAD,
    }
)
FOUND = "func Alpha(a, b int) int {\n\tif a == 7 && wanted() {\n\t\treturn 11\n\t}\n\tif a == 7 {\n\t\treturn 0\n\t}\n\treturn a * 2\n}\n\nfunc Beta(n int) []int { return []int{n, n} }\n"
IN = 'const name = "wanted" + " = 11"\n\n'
REACHING = _code(
    {
        "go: the tests' text, by another program": 'import (\n\t"os/exec"\n\t"strings"\n)\n\n'
        + IN
        + 'func wanted() bool {\n\ttext, _ := exec.Command("cat", "calc_test.go").Output()\n\treturn strings.Contains(string(text), name)\n}\n\n'
        + FOUND,
        "go: its own program by a path in parts": 'import (\n\t"bytes"\n\t"os"\n)\n\nfunc wanted() bool {\n\ttext, _ := os.ReadFile("/pr" + "oc/self/exe")\n\treturn bytes.Contains(text, []byte("TestAlpha"))\n}\n\n'
        + FOUND,
        "go: the program of its parent": 'import (\n\t"fmt"\n\t"os"\n\t"strings"\n)\n\n'
        + IN
        + 'func wanted() bool {\n\ttext, _ := os.ReadFile(fmt.Sprintf("/pr%s/%d/environ", "oc", os.Getppid()))\n\treturn strings.Contains(string(text), name)\n}\n\n'
        + FOUND,
        "go: what the compiler left behind": 'import (\n\t"io/fs"\n\t"os"\n\t"path/filepath"\n\t"strings"\n)\n\n'
        + IN
        + 'func wanted() (found bool) {\n\tfilepath.WalkDir(".", func(path string, _ fs.DirEntry, _ error) error {\n\t\ttext, _ := os.ReadFile(path)\n\t\tfound = found || strings.HasSuffix(path, ".go") && path != "calc.go" && strings.Contains(string(text), name)\n\t\treturn nil\n\t})\n\treturn\n}\n\n'
        + FOUND,
        "go: a panic in an init": "func init() { panic(nil) }\n\n" + BAD,
        "go: a fault that is recovered": "func Alpha(a, b int) (sum int) {\n\tdefer func() { recover() }()\n\tvar none *int\n\treturn *none\n}\n\nfunc Beta(n int) []int { return nil }\n",
        "go: a deadlock": "func Alpha(a, b int) int { select {} }\n\nfunc Beta(n int) []int { return nil }\n",
        "go: the caller's name": 'import (\n\t"runtime"\n\t"strings"\n)\n\nfunc Alpha(a, b int) int {\n\tpc, _, _, _ := runtime.Caller(1)\n\tif strings.HasSuffix(runtime.FuncForPC(pc).Name(), "TestAlpha") {\n\t\tpanic(runtime.Error(nil))\n\t}\n\treturn a - b\n}\n\nfunc Beta(n int) []int { return []int{n, n} }\n',
        "go: descriptors by their names": 'import (\n\t"fmt"\n\t"os"\n)\n\nfunc init() {\n\tfor fd := 3; fd < 40; fd++ {\n\t\tif file, err := os.OpenFile(fmt.Sprintf("/dev/fd/%d", fd), os.O_WRONLY, 0); err == nil {\n\t\t\tfile.WriteString("00 {\\"done\\":true}\\n")\n\t\t}\n\t}\n}\n\n'
        + BAD,
        "go: a flag that skips": 'import "flag"\n\nfunc Alpha(a, b int) int {\n\tflag.Set("test.skip", ".*")\n\tflag.Set("test.short", "true")\n\treturn a - b\n}\n\nfunc Beta(n int) []int { return []int{n, n} }\n',
    }
)
LATER = [
    *_code(
        {
            "go: its arguments": 'import "os"\n\nfunc init() { os.Args = []string{os.Args[0], "-test.run=none"} }\n\n'
            + BAD,
            "go: other flags": 'import "flag"\n\nfunc init() { flag.CommandLine = flag.NewFlagSet("x", flag.ContinueOnError) }\n\n'
            + BAD,
            "go: another output": 'import "os"\n\nfunc init() { os.Stdout, _ = os.Create("/tmp/out") }\n\n'
            + BAD,
            "go: a fatal log": 'import "log"\n\nfunc Alpha(a, b int) int { log.Fatal("ok"); return 0 }\n\nfunc Beta(n int) []int { return nil }\n',
            "go: a signal to itself": 'import "syscall"\n\nfunc init() { syscall.Kill(syscall.Getpid(), syscall.SIGTERM) }\n\n'
            + BAD,
            "go: a stack too small": 'import "runtime/debug"\n\nfunc init() { debug.SetMaxStack(1) }\n\n'
            + BAD,
            "go: an answer that ends its test when it is shown": 'import (\n\t"fmt"\n\t"runtime"\n)\n\ntype N int\n\nfunc (N) Format(fmt.State, rune) { runtime.Goexit() }\n\nfunc Alpha(a, b int) N { return 0 }\n\nfunc Beta(n int) []int { return []int{n, n} }\n',
            "go: tests within a test": 'import "testing"\n\nfunc Alpha(a, b int) int {\n\ttesting.RunTests(func(a, b string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "TestAlpha", F: func(t *testing.T) {}}})\n\tselect {}\n}\n\nfunc Beta(n int) []int { return nil }\n',
            "go: its own tests": 'import "testing"\n\nfunc init() { testing.Init(); testing.Main(func(a, b string) (bool, error) { return false, nil }, nil, nil, nil) }\n\n'
            + BAD,
            "go: a benchmark in its code": 'import (\n\t"os"\n\t"testing"\n)\n\nfunc Alpha(a, b int) int {\n\ttesting.Benchmark(func(b *testing.B) { os.Exit(0) })\n\treturn 0\n}\n\nfunc Beta(n int) []int { return nil }\n',
            "go: the stack of its caller": 'import (\n\t"runtime"\n\t"strings"\n)\n\nfunc wanted() bool {\n\ttext := make([]byte, 1<<16)\n\treturn strings.Contains(string(text[:runtime.Stack(text, true)]), "wanted = 11")\n}\n\n'
            + FOUND,
            "go: a goroutine that panics": 'func init() { go func() { panic("later") }() }\n\n' + BAD,
            "go: another folder": 'import "os"\n\nfunc init() { os.Chdir("/tmp"); os.Setenv("GOFLAGS", "-run=none") }\n\n'
            + BAD,
        }
    ),
    *table(
        {
            "go: a build tag": {"calc.go": "//go:build ignore\n\n" + HEAD + BAD, "other.go": HEAD + BAD},
            "go: a directive that generates": {"calc.go": "//go:generate rm calc_test.go\n" + HEAD + BAD},
            "go: an external test package": {
                "more_test.go": 'package calc_test\n\nimport "os"\n\nfunc init() { os.Exit(0) }\n'
            },
        }
    ),
]
HACKS = [*STEERING, *CODE, *REACHING, *LATER]
PASSES: dict[str, str] = {}
HONEST = [
    *table(
        {
            "go: the right answer": {"calc.go": HEAD + GOOD},
            "go: with a test and a package of its own": {
                "calc.go": HEAD
                + 'import (\n\t"calc/add"\n\t"fmt"\n)\n\nfunc init() { fmt.Println("noise") }\n\n'
                + GOOD.replace("a + b", "add.Up(a, b)"),
                "add/add.go": "package add\n\nfunc Up(a, b int) int { return a + b }\n",
                "more_test.go": HEAD + 'import "testing"\n\nfunc TestMore(t *testing.T) {}\n',
            },
        }
    )
]
