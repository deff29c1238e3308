package rpctest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestToolChild runs the tool that its parent asks for, which may fail it; by itself it
// does nothing.
func TestToolChild(t *testing.T) {
	tool, arg, _ := strings.Cut(os.Getenv("RPCTEST_TOOL"), " ")
	switch tool {
	case "conformance":
		RunConformance(t, faulty(t, arg), ConformanceOptions{
			Foreign: strings.Contains(arg, "foreign"),
			Skip: func(c Case) string {
				if strings.Contains(arg, "skip") && c.Group == "framing" {
					return "not this one"
				}
				return ""
			},
		})
	case "transcripts":
		RunTranscripts(t, arg, func(*testing.T) io.ReadWriteCloser { return parrot() })
	}
}

// child runs TestToolChild and returns whether it passed, and what it said.
func child(t *testing.T, tool string, args ...string) (bool, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append(args, "-test.run=^TestToolChild$", "-test.v")...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "RPCTEST_TOOL="+tool)
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	return err == nil, string(out)
}

// faulty answers every case as it should be, but for one fault: in the 20th strict
// case, the 5th lenient one, or behind the former.
func faulty(t *testing.T, fault string) Exchange {
	cases := Conformance()
	at, strict, lenient, behind := 0, 0, 0, false
	return func(_ context.Context, send []byte, answers int) ([]byte, error) {
		if answers == 1 && strings.Contains(string(send), `"probe-`) {
			if behind && strings.Contains(fault, "dead") {
				return nil, io.ErrClosedPipe
			}
			id := string(send[strings.Index(string(send), `"probe-`):strings.Index(string(send), `,"method"`)])
			if behind && strings.Contains(fault, "late") {
				return []byte(`{"jsonrpc":"2.0","id":` + id + `,"result":["other"]}`), nil
			}
			return []byte(`{"jsonrpc":"2.0","id":` + id + `,"result":[` + id + `]}`), nil
		}
		for strings.Contains(fault, "skip") && cases[at].Group == "framing" {
			at++
		}
		c := cases[at]
		at++
		if string(c.Send) != string(send) || len(c.Answers) != answers {
			t.Errorf("%s: sent %.100q for %d answers", c.Name, send, answers)
		}
		var right strings.Builder
		for _, answer := range c.Answers {
			right.WriteString(answerOf(t, answer) + "\n")
		}
		if c.Lenient {
			lenient++
		} else {
			strict++
		}
		behind = strict == 20 && !c.Lenient
		switch {
		case strings.Contains(fault, "wrong") && behind, strings.Contains(fault, "odd") && lenient == 5 && c.Lenient:
			return []byte(`{"jsonrpc":"2.0","id":"wrong","result":1}`), nil
		case strings.Contains(fault, "cut") && behind:
			return []byte("half"), io.ErrUnexpectedEOF
		}
		return []byte(right.String()), nil
	}
}

// TestRunConformanceFinds proves that a run finds the fault of a server, goes on where
// it can, ends where it cannot, and allows what it says.
func TestRunConformanceFinds(t *testing.T) {
	t.Parallel()
	all := len(Conformance())
	framing := 0
	for _, c := range Conformance() {
		if c.Group == "framing" {
			framing++
		}
	}
	for fault, want := range map[string]struct {
		cases int // that were run; 0: not all of them
		text  string
	}{
		"none":          {all, ""},
		"skip":          {all - framing, ""},
		"wrong":         {all, `unexpected answer: id "wrong"`},
		"odd":           {all, `id "wrong"`},
		"odd foreign":   {all, ""},
		"wrong foreign": {all, `id "wrong"`},
		"cut":           {0, "having answered half"},
		"dead":          {0, "afterwards the connection should still answer: io: read/write on closed pipe"},
		"late":          {0, `afterwards the connection should still answer: unexpected answer: result ["other"]`},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			passed, out := child(t, "conformance "+fault)
			if passed != (want.text == "") || !strings.Contains(out, want.text) || strings.Count(out, "    --- FAIL: ") > 1 {
				t.Errorf("passed %v:\n%.3000s", passed, out)
			}
			ran := strings.Count(out, "    --- PASS: TestToolChild/") + strings.Count(out, "    --- FAIL: TestToolChild/")
			if want.cases > 0 && ran != want.cases || want.cases == 0 && ran > all/2 {
				t.Errorf("%d of %d cases were run", ran, all)
			}
			if skipped := strings.Count(out, ": left out: not this one"); skipped != 0 != (fault == "skip") {
				t.Errorf("%d cases were left out", skipped)
			}
		})
	}
}

// TestRunTranscripts proves that all sections of all files are played, that a folder
// without any is no success, and that -update rewrites the files that need it.
func TestRunTranscripts(t *testing.T) {
	t.Parallel()
	const right, wrong, without = "about\n-- one --\n-> a|b\n<- b\n-- two --\n-> c|d\n<- d\n", "-- one --\n-> a|b\n<- b\n-- bad --\n-> a|b\n<- c\n", "about\n"
	for name, tt := range map[string]struct {
		files  map[string]string
		update bool
		text   string // what is said of a failure
		after  string // of x.txtar
		ran    []string
	}{
		"met":        {map[string]string{"x.txtar": right, "y.txt": "no transcript"}, false, "", right, []string{"x/one", "x/two"}},
		"two files":  {map[string]string{"x.txtar": right, "y.txtar": wrong}, false, `y.txtar:6: got  "b"`, right, []string{"x/one", "x/two", "y/one", "y/bad"}},
		"no file":    {nil, false, "no transcripts in ", "", nil},
		"no section": {map[string]string{"x.txtar": without}, false, "x.txtar has no section", without, nil},
		"updated":    {map[string]string{"x.txtar": wrong}, true, "", strings.Replace(wrong, "<- c", "<- b", 1), []string{"x/one", "x/bad"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var args []string
			if tt.update {
				args = []string{"-update"}
			}
			passed, out := child(t, "transcripts "+dir, args...)
			if passed != (tt.text == "") || !strings.Contains(out, tt.text) {
				t.Errorf("passed %v:\n%s", passed, out)
			}
			for _, section := range tt.ran {
				if !strings.Contains(out, ": TestToolChild/"+section+" ") {
					t.Errorf("%s was not played:\n%s", section, out)
				}
			}
			if after, err := os.ReadFile(filepath.Join(dir, "x.txtar")); string(after) != tt.after && tt.files != nil || (err != nil) != (tt.files == nil) {
				t.Errorf("the file became %q, %v", after, err)
			}
		})
	}
}
