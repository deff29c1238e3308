package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"syscall"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// The exit codes (interface.md, CLI).
const (
	exitDone         = 0
	exitFailed       = 1
	exitUsage        = 2
	exitNotFound     = 3
	exitConflict     = 4
	exitRunFailed    = 5
	exitRunCancelled = 6
	exitTimedOut     = 7
	exitUnreachable  = 8
	exitNotAllowed   = 9
)

const exitCodesHelp = `Scripts can rely on these exit codes:

  0  done
  1  failed for another reason
  2  wrong usage, or an invalid file
  3  not found: no such run, workflow or agent
  4  conflict: the name is taken, the run has ended, the key was used with other input
  5  the run failed
  6  the run was cancelled
  7  waiting timed out or was interrupted; the run goes on
  8  the server cannot be reached
  9  not allowed: a key is missing or wrong, or may not do that`

// failure is an error that knows how the program ends.
type failure struct {
	exit int
	// code names the kind of the error, text says what happened, hint what to
	// do about it.
	code parley.Code
	text string
	hint string
	// printed: everything has been said already.
	printed bool
}

func (f *failure) Error() string { return string(f.code) + ": " + f.text }

// usagef is a command line, or a file named on it, that cannot be used.
func usagef(format string, args ...any) *failure {
	return &failure{exit: exitUsage, code: "usage", text: fmt.Sprintf(format, args...)}
}

// invalidf is a file or a value whose content is wrong.
func invalidf(format string, args ...any) *failure {
	return &failure{exit: exitUsage, code: parley.CodeInvalid, text: fmt.Sprintf(format, args...)}
}

// incompletef is a command about many that was done for some of them alone.
func incompletef(format string, args ...any) *failure {
	return &failure{exit: exitFailed, code: "incomplete", text: fmt.Sprintf(format, args...)}
}

func (f *failure) withHint(format string, args ...any) *failure {
	c := *f
	c.hint = fmt.Sprintf(format, args...)
	return &c
}

// report writes err for people and gives the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitDone
	}
	f := classify(err)
	if !f.printed {
		if refused, ok := errors.AsType[*client.Error](err); ok && inDocument(refused) {
			// Editors look for places at the beginning of a line.
			for _, x := range refused.Errors {
				fmt.Fprintln(a.stderr, problemLine(x.Problem()))
			}
			c := *f
			c.text = "the document was refused: " + plural(len(refused.Errors), "finding")
			a.complain(&c)
		} else {
			a.complain(f)
			a.findings(refused)
		}
		if f.hint != "" {
			fmt.Fprintln(a.stderr, "hint: "+cleanLines(f.hint))
		}
	}
	return f.exit
}

// inDocument reports whether a refusal is about places in a document.
func inDocument(e *client.Error) bool {
	return slices.ContainsFunc(e.Errors, func(x client.FieldError) bool { return x.Line > 0 })
}

// complain writes the line of one error.
func (a *app) complain(f *failure) {
	word := "error:"
	if a.colour(a.stderr) {
		word = styleBad.Render(word)
	}
	fmt.Fprintf(a.stderr, "%s %s: %s\n", word, clean(string(f.code)), cleanLines(f.text))
}

// findings lists what a refusal is made of; nil is none.
func (a *app) findings(e *client.Error) {
	if e == nil {
		return
	}
	for _, x := range e.Errors {
		where := ""
		if x.Path != "" {
			where = clean(x.Path) + ": "
		}
		fmt.Fprintf(a.stderr, "  %s%s\n", where, clean(x.Detail))
	}
	if e.RequestID != "" && e.Status >= http.StatusInternalServerError {
		fmt.Fprintf(a.stderr, "  request id: %s\n", clean(e.RequestID))
	}
}

// classify finds out how the program ends.
func classify(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if refused, ok := errors.AsType[*client.Error](err); ok {
		f := &failure{exit: exitOfCode(refused.Code, refused.Status), code: refused.Code, text: refused.Text()}
		if f.exit == exitNotAllowed && refused.Code != parley.CodeForbidden {
			f.hint = "give the server's key with --key, --context or PARLEY_KEY; parley help exit-codes"
		}
		if refused.RequestID == "" { // which Parley gives to every request
			f.hint = "no Parley server has said that: check the address of --url, --context or PARLEY_URL, and what is in between"
		}
		return f
	}
	if broken, ok := errors.AsType[*client.UnreachableError](err); ok {
		f := &failure{exit: exitUnreachable, code: "unreachable", text: broken.Error()}
		f.hint = "is the server running? Start one with: parley dev"
		switch {
		case broken.Sent && broken.Method == http.MethodGet:
			f.hint = "nothing was changed: try again, and check that what answers there is a Parley server"
		case broken.Sent:
			f.hint = "what was asked for may have been done: look before you repeat it"
		}
		return f
	}
	if long, ok := errors.AsType[*client.TooLongError](err); ok {
		f := &failure{exit: exitFailed, code: parley.CodeLimit, text: long.Error()}
		f.hint = "ask for less at a time (--limit, --step), or write it to a file as it comes: parley api " + long.Method + " " + shellWord(long.Path) + " > FILE"
		if long.Method != http.MethodGet { // what was done is not to be done again to see the answer
			f.hint = "the server has done what was asked for: do not repeat it, look at what came of it"
		}
		return f
	}
	if errors.Is(err, context.Canceled) {
		return &failure{exit: exitFailed, code: parley.CodeCancelled, text: "interrupted"}
	}
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return &failure{exit: exitOfCode(e.Code, 0), code: e.Code, text: e.Message}
	}
	if f := ofFile(err); f != nil {
		return f
	}
	return &failure{exit: exitFailed, code: parley.CodeInternal, text: err.Error()}
}

// ofFile is the failure of a file, a folder or an output that this machine does not let
// be read or written: no fault of Parley. It is nil for every other error.
func ofFile(err error) *failure {
	path, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return nil
	}
	for _, use := range []error{
		fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG,
	} {
		if errors.Is(path, use) {
			return usagef("%v", err)
		}
	}
	f := &failure{exit: exitFailed, code: parley.CodeUnavailable, text: err.Error()}
	if errors.Is(path, syscall.ENOSPC) || errors.Is(path, syscall.EDQUOT) {
		return f.withHint("make room there, and type the command again")
	}
	return f
}

// exitOfCode goes by the code first: on the paths of the existing platform the
// status of a conflict is 400.
func exitOfCode(code parley.Code, status int) int {
	switch code {
	case parley.CodeNotFound:
		return exitNotFound
	case parley.CodeConflict, parley.CodeIdempotencyConflict:
		return exitConflict
	case parley.CodeUnauthorized, parley.CodeForbidden:
		return exitNotAllowed
	case parley.CodeInvalid, parley.CodeInvalidInput, parley.CodeUnsupportedProtocol, parley.CodeUnknownAgent, parley.CodeExpression:
		return exitUsage
	}
	switch status {
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusConflict:
		return exitConflict
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitNotAllowed
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return exitUsage
	}
	return exitFailed
}

// all joins the errors of several files or records: each has been reported,
// and the first decides how the program ends.
func (a *app) all(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	f := *classify(errs[0])
	f.printed = true
	return &f
}
