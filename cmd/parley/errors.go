package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
	"github.com/parley-project/parley/jsonrpc"
)

// Where a code is met.
const (
	metRun      = "run"
	metRequest  = "request"
	metDocument = "document"
	metCommand  = "command"
	metRPC      = "rpc"
)

// Whether the same thing, done once more, may go well.
const (
	retryYes     = "yes"
	retryNo      = "no"
	retryPerhaps = "perhaps"
)

// errorEntry is what there is to say about one code.
type errorEntry struct {
	Code string `json:"code"`
	// Name is what JSON-RPC calls a number.
	Name string   `json:"name,omitempty"`
	In   []string `json:"in"`
	// HTTPStatus is that of an answer that refuses with the code, 0 if none does.
	HTTPStatus int `json:"http_status,omitempty"`
	// ExitCode is that of a command that ends with the code, RunExitCode that of
	// one that waited for a run which ended with it; 0 if no run does.
	ExitCode    int      `json:"exit_code"`
	RunExitCode int      `json:"run_exit_code,omitempty"`
	Retry       string   `json:"retry"`
	Meaning     string   `json:"meaning"`
	Causes      []string `json:"causes"`
	Next        []string `json:"next"`
}

func newErrorsCommand(a *app) *cobra.Command {
	var number string
	cmd := &cobra.Command{
		Use:   "errors [CODE]",
		Short: "Explain an error code, or list them all",
		Long: `Say what an error code means, what usually leads to it and what to do next;
without CODE list all of them. No server is needed. CODE is written in upper or
lower case, and may be a number of JSON-RPC.

IN says where a code is met: as the error of a run or of one of its steps, as
the refusal of a request, as a finding in a document (file:line:col: code: text),
as what a command says by itself, or as the answer of a JSON-RPC peer. HTTP is
the status of a refusal, EXIT the exit code of the command that tells it, and OF
A RUN that of a command that waited for a run. RETRY says whether the same
again may go well.`,
		Example: `  parley errors
  parley errors outcome_unknown
  parley errors -32601
  parley errors -o json`,
		Args: need("[CODE]"),
		RunE: func(_ *cobra.Command, args []string) error {
			if number != "" {
				args = append(args, number)
			}
			switch len(args) {
			case 0:
				return a.listErrors()
			case 1:
				return a.explainError(args[0])
			}
			return usagef("it takes one CODE, or none").withHint("parley errors [CODE]")
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return errorCodes(errorBook()), cobra.ShellCompDirectiveNoFileComp
		},
	}
	takeNegative(cmd, &number)
	return cmd
}

// takeNegative lets a command have a negative number as its argument, which reads
// like the short forms of flags: each digit is one, with the rest as its value.
func takeNegative(cmd *cobra.Command, into *string) {
	for digit := '1'; digit <= '9'; digit++ {
		name := "code-" + string(digit)
		cmd.Flags().VarP(negative{string(digit), into}, name, string(digit), "a code that begins with -"+string(digit))
		cmd.Flags().Lookup(name).Hidden = true
	}
}

// negative is a number that was read up to its first digit.
type negative struct {
	digit string
	into  *string
}

// Set takes the digits that follow.
func (n negative) Set(rest string) error {
	if *n.into != "" {
		return usagef("it takes one CODE")
	}
	*n.into = "-" + n.digit + rest
	return nil
}

// String gives nothing: there is no default.
func (n negative) String() string { return "" }

// Type names the value in help.
func (n negative) Type() string { return "number" }

// errorBook is every code that Parley tells people, those of runs first, with what
// the program itself knows about it.
func errorBook() []errorEntry {
	book := slices.Concat(runErrors(), agentErrors(), requestErrors(), documentErrors(), settingErrors(), commandErrors())
	for i := range book {
		book[i].derive()
	}
	return append(book, peerErrors()...)
}

// derive fills in what other parts of the program decide about a code.
func (e *errorEntry) derive() {
	code := parley.Code(e.Code)
	if slices.Contains(e.In, metRun) {
		e.RunExitCode = classify(outcome(endedWith(code))).exit
	}
	if status, ok := server.ErrorStatus(code); ok {
		e.HTTPStatus, e.ExitCode = status, exitOfCode(code, status)
		return
	}
	if e.ExitCode == 0 {
		e.ExitCode = exitOfCode(parley.CodeInvalid, 0)
	}
}

// endedWith is a run that has this code for its error.
func endedWith(code parley.Code) parley.Run {
	if code == parley.CodeCancelled {
		return parley.Run{Status: parley.RunCancelled}
	}
	return parley.Run{Status: parley.RunFailed, Error: &parley.Error{Code: code}}
}

func errorCodes(book []errorEntry) []string {
	codes := make([]string, len(book))
	for i, e := range book {
		codes[i] = e.Code
	}
	return codes
}

func (a *app) listErrors() error {
	book := errorBook()
	if err := showList(a, listing[errorEntry]{whole: book, items: book, columns: errorColumns(), none: "no codes"}); err != nil {
		return err
	}
	a.next("parley errors %s", book[0].Code)
	return nil
}

func errorColumns() []column[errorEntry] {
	number := func(head string, of func(errorEntry) int) column[errorEntry] {
		return column[errorEntry]{head: head, fixed: true, cell: plain(func(e errorEntry) string { return numberOrNone(of(e)) })}
	}
	return []column[errorEntry]{
		{head: "CODE", fixed: true, cell: plain(func(e errorEntry) string { return e.Code })},
		{head: "IN", fixed: true, cell: plain(func(e errorEntry) string { return strings.Join(e.In, ", ") })},
		number("HTTP", func(e errorEntry) int { return e.HTTPStatus }),
		number("EXIT", func(e errorEntry) int { return e.ExitCode }),
		number("OF A RUN", func(e errorEntry) int { return e.RunExitCode }),
		{head: "RETRY", fixed: true, cell: plain(func(e errorEntry) string { return e.Retry })},
		{head: "MEANING", cell: plain(func(e errorEntry) string { return e.Meaning })},
	}
}

// numberOrNone is the text of a number of which 0 says that there is none.
func numberOrNone(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func (a *app) explainError(text string) error {
	book := errorBook()
	code := strings.ToLower(strings.TrimSpace(text))
	at := slices.IndexFunc(book, func(e errorEntry) bool { return e.Code == code })
	if at < 0 {
		return unknownError(text, book)
	}
	e := book[at]
	return a.show(e, func(s *sheet) { drawError(s, e) })
}

// unknownError is a code that Parley does not have.
func unknownError(text string, book []errorEntry) error {
	f := &failure{exit: exitNotFound, code: parley.CodeNotFound, text: fmt.Sprintf("there is no error code %q", text)}
	if s := didYouMean(text, errorCodes(book)); s != "" {
		return f.withHint("%s", s)
	}
	return f.withHint("parley errors lists them all")
}

func drawError(s *sheet, e errorEntry) {
	s.fields([]field{
		{"Code", cell{text: e.Code}},
		{"Name", cell{text: e.Name}},
		{"In", cell{text: strings.Join(e.In, ", ")}},
		{"Meaning", cell{text: e.Meaning}},
		{"HTTP status", cell{text: numberOrNone(e.HTTPStatus)}},
		{"Exit code", cell{text: exitText(e)}},
		{"Retry", cell{text: e.Retry}},
	})
	lines := func(head string, list []string) {
		s.line("")
		s.line(s.ink(styleDim, head))
		for _, text := range list {
			s.line("  " + clean(text))
		}
	}
	lines("Usual causes", e.Causes)
	lines("What to do next", e.Next)
}

// exitText says with what exit codes commands end that tell of the code.
func exitText(e errorEntry) string {
	text := fmt.Sprint(e.ExitCode)
	if e.RunExitCode != 0 {
		text += fmt.Sprintf("; %d after waiting for a run that ended with it", e.RunExitCode)
	}
	return text
}

// peerErrors are the errors of JSON-RPC peers, by their numbers. What to do about
// one is what parley rpc call says when it meets it.
func peerErrors() []errorEntry {
	entry := func(code jsonrpc.Code, retry, meaning string, causes ...string) errorEntry {
		f := wireFailure(&jsonrpc.Error{Code: code, Message: code.String()})
		return errorEntry{
			Code: fmt.Sprint(int64(code)), Name: code.String(), In: []string{metRPC}, ExitCode: f.exit, Retry: retry,
			Meaning: meaning, Causes: causes, Next: []string{f.hint},
		}
	}
	return []errorEntry{
		entry(jsonrpc.CodeParseError, retryNo, "The peer got what is no JSON text.", "another framing than the peer's", "text in another encoding than UTF-8"),
		entry(jsonrpc.CodeInvalidRequest, retryNo, "The peer got JSON that is no JSON-RPC 2.0 request, or one beyond a limit.", "a message, a batch or a nesting that is too large for the peer", "a peer of JSON-RPC 1.0"),
		entry(jsonrpc.CodeMethodNotFound, retryNo, "The peer has no such method.", "a misspelt name", "another version of the peer"),
		entry(jsonrpc.CodeInvalidParams, retryNo, "The method cannot use these params.", "params by position in place of by name, or the other way round", "a member that is missing or misspelt"),
		entry(jsonrpc.CodeInternalError, retryPerhaps, "The method failed in the peer.", "a fault of the peer's program, or of what it needs"),
		entry(jsonrpc.CodeServerBusy, retryYes, "The peer has too much to do; the request was not begun.", "more requests at once than the peer handles"),
		entry(jsonrpc.CodeTimeout, retryPerhaps, "The peer's handler ran out of time; some of the work may have been done.", "a method that is slow, or a limit that is short", "a peer that was stopped while it worked"),
		entry(jsonrpc.CodeClosing, retryYes, "The peer is closing the connection; the request was not begun.", "a peer that stops or is restarted"),
		entry(jsonrpc.CodeCancelled, retryNo, "The call was cancelled by its caller.", "a caller that gave up, or was interrupted"),
	}
}
