package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"not_found 404": exitNotFound, "not_found 400": exitNotFound, "conflict 400": exitConflict, "conflict 409": exitConflict,
		"idempotency_conflict 409": exitConflict, "unauthorized 401": exitNotAllowed, "forbidden 403": exitNotAllowed, "forbidden 421": exitNotAllowed,
		"invalid 422": exitUsage, "invalid_input 422": exitUsage, "unsupported_protocol 422": exitUsage, "unknown_agent 400": exitUsage,
		"limit 413": exitUsage, "limit 422": exitUsage, "limit 429": exitFailed, "internal 500": exitFailed, "unavailable 503": exitFailed,
		"not_implemented 501": exitFailed, "something_new 404": exitNotFound, "something_new 409": exitConflict, "something_new 403": exitNotAllowed,
	} {
		var code string
		var status int
		if _, err := fmt.Sscan(text, &code, &status); err != nil {
			t.Fatal(err)
		}
		if got := exitOfCode(parley.Code(code), status); got != want {
			t.Errorf("%s: exit code %d, want %d", text, got, want)
		}
	}
}

// TestFilesThatFail: what this machine does to files and outputs is told as that, not as
// a fault of Parley.
func TestFilesThatFail(t *testing.T) {
	t.Parallel()
	for errno, want := range map[syscall.Errno]struct {
		exit int
		code parley.Code
		hint bool
	}{
		syscall.ENOENT: {exitUsage, "usage", false}, syscall.EACCES: {exitUsage, "usage", false}, syscall.EROFS: {exitUsage, "usage", false},
		syscall.ENOTDIR: {exitUsage, "usage", false}, syscall.EISDIR: {exitUsage, "usage", false}, syscall.EEXIST: {exitUsage, "usage", false},
		syscall.ENOSPC: {exitFailed, parley.CodeUnavailable, true}, syscall.EDQUOT: {exitFailed, parley.CodeUnavailable, true},
		syscall.EIO: {exitFailed, parley.CodeUnavailable, false}, syscall.EFBIG: {exitFailed, parley.CodeUnavailable, false},
	} {
		broken := &fs.PathError{Op: "write", Path: "/dev/stdout", Err: errno}
		a := &app{stdout: failing{broken}, flags: flags{output: "json"}}
		f := classify(a.show("text", func(*sheet) {}))
		if f.exit != want.exit || f.code != want.code || (f.hint != "") != want.hint || !strings.Contains(f.text, broken.Error()) {
			t.Errorf("%v: exit code %d, %v, hint %q", errno, f.exit, f, f.hint)
		}
	}
	if f := classify(errors.New("nobody knows")); f.code != parley.CodeInternal || f.exit != exitFailed {
		t.Errorf("another error: %d, %v", f.exit, f)
	}
}

// TestKeyThatNobodyHasSeen: a key that could not be shown is good all the same, so that
// it is said how to be rid of it.
func TestKeyThatNobodyHasSeen(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"name":"ci","key":"shown-once"}`)
	}))
	defer s.Close()
	said := &strings.Builder{}
	a := &app{
		stdin: strings.NewReader(""), stdout: failing{syscall.ENOSPC}, stderr: said, dir: t.TempDir(), now: time.Now, zone: time.UTC,
		terminal: func(io.Writer) (int, bool) { return 0, false },
	}
	if exit := a.execute(t.Context(), []string{"key", "create", "ci", "--url", s.URL, "--key", "k"}); exit == exitDone || !strings.Contains(said.String(), "parley key revoke ci") {
		t.Errorf("exit code %d, said %s", exit, said)
	}
}

// failing is an output that takes nothing.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestSurplusArguments: whatever a command is called with, too much of it is wrong usage,
// and so is a command that there is not.
func TestSurplusArguments(t *testing.T) {
	t.Parallel()
	root := newRootCommand(&app{stdout: io.Discard, stderr: io.Discard})
	addCompletion(root)
	refusing := 0
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			look(c)
		}
		if cmd.HasSubCommands() {
			if cmd.RunE == nil || classify(cmd.RunE(cmd, []string{"frobnicate"})).exit != exitUsage {
				t.Errorf("%s takes a command that there is not", cmd.CommandPath())
			}
			return
		}
		if cmd.Args == nil {
			return
		}
		err := cmd.Args(cmd, slices.Repeat([]string{"x"}, 20))
		if err == nil {
			return
		}
		refusing++
		if f := classify(err); f.exit != exitUsage || f.code != "usage" {
			t.Errorf("%s: exit code %d: %v", cmd.CommandPath(), f.exit, err)
		}
	}
	look(root)
	if refusing < 50 {
		t.Errorf("%d commands refuse what is too much", refusing)
	}
}

// TestOtherServers: what another server at the address says is told as that.
func TestOtherServers(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	var errs strings.Builder
	a := &app{
		stdin: strings.NewReader(""), stdout: io.Discard, stderr: &errs, dir: t.TempDir(), now: time.Now, zone: time.UTC,
		terminal: func(io.Writer) (int, bool) { return 0, false },
	}
	if exit := a.execute(t.Context(), []string{"run", "list", "--url", s.URL, "--key", "k"}); exit != exitNotFound || !strings.Contains(errs.String(), "hint: no Parley server has said that") {
		t.Errorf("%d %s", exit, errs.String())
	}
}

// TestBrokenConnections: only who has asked for a change is told that it may be made.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]string{http.MethodGet: "nothing was changed", http.MethodPost: "may have been done"} {
		if f := classify(&client.UnreachableError{Method: method, Sent: true}); f.exit != exitUnreachable || !strings.Contains(f.hint, want) {
			t.Errorf("%s: %+v", method, f)
		}
	}
}

// TestTooLongAnswers: what is longer than the command reads comes with a command that
// has no such limit.
func TestTooLongAnswers(t *testing.T) {
	cause := &client.TooLongError{Method: "GET", Path: "/api/v1/runs/r/events?after=3&limit=500", Limit: 1 << 20}
	f := classify(parley.Errorf(parley.CodeLimit, "%w", cause))
	want := "ask for less at a time (--limit, --step), or write it to a file as it comes: parley api GET '/api/v1/runs/r/events?after=3&limit=500' > FILE"
	if f.exit != exitFailed || f.code != parley.CodeLimit || f.hint != want || !strings.Contains(f.text, "longer than 1048576 bytes") {
		t.Errorf("%+v", f)
	}
	cause.Method, cause.Path = "POST", "/api/v1/runs/r/retry"
	if f := classify(cause); f.code != parley.CodeLimit || strings.Contains(f.hint, "parley api") || !strings.Contains(f.hint, "do not repeat it") {
		t.Errorf("of what is done once: %+v", f)
	}
}
