package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	passes = `{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"--- PASS: TestGood\n"}
{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":0.1}
`
	skips = `{"Action":"output","Package":"p","Test":"TestShy","Output":"    p_test.go:7: no server here\n"}
{"Action":"skip","Package":"p","Test":"TestShy"}
`
	fails = `{"Action":"output","Package":"p","Test":"TestBad","Output":"    p_test.go:9: 2, want 3\n"}
{"Action":"fail","Package":"p","Test":"TestBad"}
`
	passed  = `{"Action":"pass","Package":"p","Elapsed":1.25}` + "\n"
	noBuild = `{"Action":"build-output","ImportPath":"p [p.test]","Output":"p.go:3: undefined: x\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}
`
)

// TestSum: the last line counts, and nothing that was skipped, has failed or does
// not build goes through in CI.
func TestSum(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		goTest, ci   bool
		code         int
		last, shown  string
	}{
		{"good", passes + passed, true, true, 0, "1 passed, 0 failed, 0 skipped", "ok    p  1.2s"},
		{"skipped in CI", passes + skips + passed, true, true, 1, "1 passed, 0 failed, 1 skipped", "nothing may be skipped in CI"},
		{"a skip says why", passes + skips + passed, true, true, 1, "1 passed, 0 failed, 1 skipped", "SKIP  p TestShy\n    p_test.go:7: no server here"},
		{"skipped elsewhere", skips + passed, true, false, 0, "0 passed, 0 failed, 1 skipped", "SKIP  p TestShy"},
		{"failed", passes + fails, false, false, 1, "1 passed, 1 failed, 0 skipped", "FAIL  p TestBad\n    p_test.go:9: 2, want 3"},
		{"failed, go test says otherwise", fails + passed, true, false, 1, "0 passed, 1 failed, 0 skipped", "FAIL  p TestBad"},
		{"does not build", noBuild, false, false, 1, "0 passed, 1 failed, 0 skipped", "p.go:3: undefined: x"},
		{"go test failed without a word", passes, false, true, 1, "1 passed, 0 failed, 0 skipped", ""},
		{"no JSON", "go: downloading x\n" + passes + passed, true, true, 0, "1 passed, 0 failed, 0 skipped", "go: downloading x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			sum := newTally(&out)
			if err := sum.read(strings.NewReader(c.stream)); err != nil {
				t.Fatal(err)
			}
			if code := sum.sum(c.goTest, c.ci); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if last := lines[len(lines)-1]; last != c.last {
				t.Errorf("last line %q, want %q", last, c.last)
			}
			if !strings.Contains(out.String(), c.shown) || strings.Contains(out.String(), "PASS: TestGood") {
				t.Errorf("shows\n%s\nwant %q, and not what passed", out.String(), c.shown)
			}
		})
	}
}

// TestSlowest: the slowest tests are told near the end, the slowest first,
// the parts of a test with it, and quick ones not at all.
func TestSlowest(t *testing.T) {
	var out strings.Builder
	sum := newTally(&out)
	for i, c := range []struct {
		test string
		took float64
	}{{"TestQuick", 1}, {"TestSlow", 40}, {"TestSlow/part", 39}, {"TestSlower", 60.25}} {
		action := []string{"pass", "fail"}[i%2]
		sum.take(event{Action: action, Package: "p", Test: c.test, Elapsed: c.took})
	}
	sum.sum(true, true)
	if want := "slow  p TestSlower  60.2s\nslow  p TestSlow  40.0s\nFAIL  p TestSlow\nFAIL  p TestSlower\n2 passed, 2 failed, 0 skipped\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("shows\n%s\nwant it to end with\n%s", out.String(), want)
	}
	out.Reset()
	for range 2 * slowest {
		sum.take(event{Action: "pass", Package: "q", Test: "TestSlow", Elapsed: 50})
	}
	sum.sum(true, true)
	if n := strings.Count(out.String(), "slow  "); n != slowest {
		t.Errorf("%d slow tests are shown, want %d", n, slowest)
	}
}

// TestFailuresAgain: what failed is named once more at the end, with the first lines
// of what it wrote and no more, however much another one writes after it.
func TestFailuresAgain(t *testing.T) {
	var out strings.Builder
	sum := newTally(&out)
	write := func(test, output string) {
		sum.take(event{Action: "output", Package: "p", Test: test, Output: output})
	}
	write("TestBad", "=== RUN   TestBad\n")
	write("TestBad", "    p_test.go:9: 2,")
	write("TestBad", " want 3\n")
	write("TestBad", "--- FAIL: TestBad (0.10s)\n")
	sum.take(event{Action: "fail", Package: "p", Test: "TestBad"})
	write("TestLoud", strings.Repeat("    p_test.go:10: much\n", 50)+strings.Repeat("é", againBytes))
	sum.take(event{Action: "fail", Package: "p", Test: "TestLoud"})
	write("", strings.Repeat("what servers wrote\n", 1000))
	sum.take(event{Action: "fail", Package: "p"})
	sum.take(event{Action: "build-output", ImportPath: "q", Output: "q.go:3: undefined: x\n"})
	sum.take(event{Action: "fail", Package: "q", FailedBuild: "q"})
	sum.take(event{Action: "output", Package: "r", Test: "TestHung", Output: "began\npanic: test timed out after 15s\n"})
	sum.take(event{Action: "fail", Package: "r"})
	sum.sum(false, true)
	want := "FAIL  p TestBad\n      p_test.go:9: 2, want 3\n" +
		"FAIL  p TestLoud\n" + strings.Repeat("      p_test.go:10: much\n", againLines) +
		"FAIL  q\n      q.go:3: undefined: x\nFAIL  r\n      panic: test timed out after 15s\n0 passed, 2 failed, 0 skipped\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("ends with\n%s\nwant\n%s", out.String()[max(0, out.Len()-2*len(want)):], want)
	}
	out.Reset()
	for range 2 * againTests {
		write("TestLong", strings.Repeat("é", againBytes))
		sum.take(event{Action: "fail", Package: "p", Test: "TestLong"})
	}
	sum.sum(false, true)
	_, again, _ := strings.Cut(out.String(), "FAIL  p TestBad\n      ")
	if len(again) > (againTests+1)*(againLines*(againBytes+20)) || !strings.Contains(again, fmt.Sprintf("FAIL  and %d more\n", againTests+4)) {
		t.Errorf("%d bytes at the end: %s", len(again), again)
	}
}

// TestRunHung: of a package that dies while a test runs, it is shown where that
// stood.
func TestRunHung(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod":    "module p\n",
		"p_test.go": "package p\nimport (\"os\"; \"testing\")\nfunc TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { println(\"stood here\"); os.Exit(3) }\n",
	} {
		if err := os.WriteFile(filepath.Join(".", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	code := run([]string{"./..."}, &out, true)
	if code != 1 || !strings.Contains(out.String(), "stood here") || !strings.HasSuffix(out.String(), "\n1 passed, 1 failed, 0 skipped\n") {
		t.Errorf("exit code %d of\n%s", code, out.String())
	}
}

// TestRunHungInCleanup: the same where the stacks count as output of another test, which
// has passed.
func TestRunHungInCleanup(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod": "module p\n",
		"p_test.go": `package p
import "testing"
func TestA(t *testing.T) { t.Parallel(); stood := make(chan int); t.Cleanup(func() { <-stood }) }
func TestB(t *testing.T) { t.Parallel() }
`,
	} {
		if err := os.WriteFile(filepath.Join(".", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	code := run([]string{"-timeout", "15s", "./..."}, &out, true)
	if code != 1 || !strings.Contains(out.String(), "p.TestA.func1") {
		t.Errorf("exit code %d of\n%s", code, out.String())
	}
}

// TestRunAgain: a test that fails among others and passes by itself counts as passed
// and is named with what it wrote; one that fails again has failed, as does one that
// no slow machine makes fail.
func TestRunAgain(t *testing.T) {
	for _, c := range []struct {
		name, body string
		code       int
		end        string
	}{
		{
			"flaky", `if first { t.Run("part", func(t *testing.T) { t.Error("too slow") }) }`, 0,
			"\nFLAKY p TestB/part\n      p_test.go:7: too slow\nFLAKY p TestB\n3 passed, 0 failed, 0 skipped\n",
		},
		{"broken", `_ = first; t.Error("wrong")`, 1, "\nFAIL  p TestB\n      p_test.go:7: wrong\n1 passed, 1 failed, 0 skipped\n"},
		{"a panic", `if first { panic("no") }`, 1, "passed, 1 failed, 0 skipped\n"},
		{"a race", `if first { t.Error("WARNING: DATA RACE") }`, 1, "\n1 passed, 1 failed, 0 skipped\n"},
		{"skipped then", `if first { t.Error("no") } else { t.Skip() }`, 1, "\n1 passed, 1 failed, 0 skipped\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for name, text := range map[string]string{
				"go.mod": "module p\n",
				"p_test.go": `package p
import ("os"; "testing")
func TestA(t *testing.T) {}
func TestB(t *testing.T) {
	_, err := os.Stat("ran"); first := err != nil
	_ = os.WriteFile("ran", nil, 0o600)
	` + c.body + `
}
`,
			} {
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			if code := run([]string{"-timeout", "1m", "./..."}, &out, true); code != c.code || !strings.HasSuffix(out.String(), c.end) {
				t.Errorf("exit code %d, want %d, of\n%s\nwant it to end with %q", code, c.code, out.String(), c.end)
			}
		})
	}
}

// TestMayPass: only a few tests are run again.
func TestMayPass(t *testing.T) {
	sum := newTally(new(strings.Builder))
	if sum.mayPass() {
		t.Error("nothing has failed")
	}
	for i := range flakyAtMost + 1 {
		for _, test := range []string{fmt.Sprint("Test", i), fmt.Sprint("Test", i, "/part")} {
			sum.take(event{Action: "fail", Package: "p", Test: test})
		}
		if got, want := sum.mayPass(), i < flakyAtMost; got != want {
			t.Errorf("%d tests failed: %v, want %v", i+1, got, want)
		}
	}
	sum = newTally(new(strings.Builder))
	sum.take(event{Action: "fail", Package: "p", Test: "TestA"})
	sum.take(event{Action: "fail", Package: "q"})
	if sum.mayPass() {
		t.Error("a package that failed as a whole is taken for slow")
	}
	sum = newTally(new(strings.Builder))
	sum.take(event{Action: "fail", Package: "p", Test: "TestA"})
	sum.take(event{Action: "output", Package: "p", Output: "testing: race detected outside of test execution\n"})
	sum.take(event{Action: "fail", Package: "p"})
	if sum.mayPass() {
		t.Error("a race after the tests is taken for slow")
	}
}

// TestRunSkipped: the same with go test itself.
func TestRunSkipped(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod":    "module p\n",
		"p_test.go": "package p\nimport \"testing\"\nfunc TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { t.Skip(\"why\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(".", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for ci, want := range map[bool]int{true: 1, false: 0} {
		var out strings.Builder
		if code := run([]string{"./..."}, &out, ci); code != want || !strings.HasSuffix(out.String(), "\n1 passed, 0 failed, 1 skipped\n") {
			t.Errorf("in CI %v: exit code %d, want %d, of\n%s", ci, code, want, out.String())
		}
	}
}
