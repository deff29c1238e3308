package rpctest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// RunTranscripts plays the transcripts in dir, files that end in .txtar, each
// against connections that connect makes: what it returns is the client's end,
// which RunTranscripts closes, and the server's end is up to the caller. The
// files are text:
//
//	What this is about, for people.
//
//	-- one section for each connection --
//	# a comment
//	-> {"jsonrpc":"2.0","id":1,"method":"sum","params":[1,2,4]}
//	<- {"jsonrpc":"2.0","id":1,"result":7}
//
// Each line begins with what it does:
//
//	-> TEXT      sends TEXT and a newline
//	->- TEXT     sends TEXT without a newline
//	->q "TEXT"   sends a Go string literal, "\r\n" for example
//	<- TEXT      the next line that comes is TEXT, byte for byte
//	<~ TEXT      the same, but the elements of an array may come in any order
//	<-q "TEXT"   the next bytes that come are the string
//	!split       sends what follows later, so that it is read by itself
//	!close       ends our side of the connection
//	!eof         the server ends the connection, after nothing else
//	#, nothing   mean nothing
//
// Lines that are sent one after another leave in one Write. ${TEXT*N} in a TEXT
// stands for N times TEXT. At the end of a section our side of the connection
// is closed if it has a method CloseWrite, and nothing more may come; without
// the method the end is not looked at. A step fails after two minutes.
//
// If the test has a flag -update (flag.Bool) and it is set, expectations that
// fail become what has come, instead; that takes a second for each that is too
// many.
func RunTranscripts(t *testing.T, dir string, connect func(t *testing.T) io.ReadWriteCloser) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in %s: %v", dir, err)
	}
	update := updating()
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			script := parseScript(filepath.Base(file), string(data))
			if len(script.sections) == 0 {
				t.Fatalf("%s has no section: a line -- NAME -- begins one", file)
			}
			for _, s := range script.sections {
				t.Run(s.name, func(t *testing.T) {
					p := &player{TB: t, script: script, patience: patience, update: update}
					if update {
						p.patience = time.Second
					}
					p.play(s, connect(t))
				})
			}
			if after := script.text(); update && after != string(data) {
				if err := os.WriteFile(file, []byte(after), 0o666); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// updating says whether the test binary has a flag -update that is set.
func updating() bool {
	f := flag.Lookup("update")
	if f == nil {
		return false
	}
	get, ok := f.Value.(flag.Getter)
	if !ok {
		return false
	}
	on, ok := get.Get().(bool)
	return on && ok
}

// A script is a transcript: its lines, and which of them belong to a section.
type script struct {
	file     string
	lines    []string
	sections []section
	dropped  map[int]bool     // lines that an update removes
	added    map[int][]string // lines that an update puts before one
}

type section struct {
	name       string
	begin, end int // of its lines
}

var sectionLine = regexp.MustCompile(`^-- (.+) --\s*$`)

func parseScript(file, text string) *script {
	s := &script{file: file, lines: strings.Split(text, "\n"), dropped: make(map[int]bool), added: make(map[int][]string)}
	for i, line := range s.lines {
		m := sectionLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if n := len(s.sections); n > 0 {
			s.sections[n-1].end = i
		}
		s.sections = append(s.sections, section{name: m[1], begin: i + 1, end: len(s.lines)})
	}
	return s
}

// text returns the script with its updates.
func (s *script) text() string {
	var out []string
	for i := 0; i <= len(s.lines); i++ {
		out = append(out, s.added[i]...)
		if i < len(s.lines) && !s.dropped[i] {
			out = append(out, s.lines[i])
		}
	}
	return strings.Join(out, "\n")
}

// A player plays one section.
type player struct {
	testing.TB
	script   *script
	patience time.Duration
	update   bool

	conn   io.ReadWriteCloser
	line   int    // the one that is being played
	out    []byte // gathered to be sent
	closed bool   // our side is
	in     []byte // what came and was not looked at
	chunks chan []byte
}

// play plays the lines of a section over conn, and closes it.
func (p *player) play(s section, conn io.ReadWriteCloser) {
	p.Helper()
	p.conn, p.chunks = conn, make(chan []byte, 64)
	done := make(chan struct{})
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.receive(done)
	}()
	defer func() {
		close(done)
		conn.Close()
		<-read
	}()
	for p.line = s.begin; p.line < s.end; p.line++ {
		p.step(strings.TrimSuffix(p.script.lines[p.line], "\r"))
	}
	p.finish()
}

// receive reads until the end of the connection, or of the section.
func (p *player) receive(done <-chan struct{}) {
	defer close(p.chunks)
	for {
		buf := make([]byte, 32<<10)
		n, err := p.conn.Read(buf)
		select {
		case p.chunks <- buf[:n]:
		case <-done:
			return
		}
		if err != nil {
			return
		}
	}
}

func (p *player) fail(format string, args ...any) {
	p.Helper()
	p.Fatalf("%s:%d: %s", p.script.file, p.line+1, fmt.Sprintf(format, args...))
}

func (p *player) step(line string) {
	p.Helper()
	verb, text, _ := strings.Cut(line, " ")
	switch verb {
	case "->":
		p.out = append(p.out, p.expand(text)+"\n"...)
		return
	case "->-":
		p.out = append(p.out, p.expand(text)...)
		return
	case "->q":
		p.out = append(p.out, p.unquote(text)...)
		return
	}
	switch {
	case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		return
	case verb == "<-" || verb == "<~":
		p.send()
		p.expectLine(verb, text)
	case verb == "<-q":
		p.send()
		p.expectBytes(p.unquote(text))
	case line == "!split":
		p.send()
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // nothing tells when the other side has read
	case line == "!close":
		p.send()
		p.closeWrite()
	case line == "!eof":
		p.send()
		p.expectEnd()
	default:
		p.fail("%q begins with none of ->, ->-, ->q, <-, <~, <-q, !split, !close, !eof and #", line)
	}
}

// send writes what was gathered.
func (p *player) send() {
	p.Helper()
	out := p.out
	if p.out = nil; len(out) == 0 {
		return
	}
	written := make(chan error, 1)
	go func() {
		_, err := p.conn.Write(out)
		written <- err
	}()
	select {
	case err := <-written:
		if err != nil {
			p.fail("sending: %v", err)
		}
	case <-time.After(patience): // also with -update: a busy server reads late
		p.conn.Close()
		p.fail("the server does not read what is sent: %v", <-written)
	}
}

func (p *player) closeWrite() {
	p.Helper()
	p.closed = true
	var err error
	if c, ok := p.conn.(interface{ CloseWrite() error }); ok {
		err = c.CloseWrite()
	} else {
		err = p.conn.Close()
	}
	if err != nil {
		p.fail("closing: %v", err)
	}
}

// errQuiet says that nothing came in time.
var errQuiet = errors.New("nothing came in time")

// await waits until in satisfies enough.
func (p *player) await(enough func() bool) error {
	timeout := time.NewTimer(p.patience)
	defer timeout.Stop()
	for !enough() {
		select {
		case chunk, ok := <-p.chunks:
			if !ok {
				return io.EOF
			}
			p.in = append(p.in, chunk...)
		case <-timeout.C:
			return errQuiet
		}
	}
	return nil
}

// nextLine takes a line off what came, without its newline.
func (p *player) nextLine() (string, error) {
	end := -1
	seen := 0
	err := p.await(func() bool {
		if i := bytes.IndexByte(p.in[seen:], '\n'); i >= 0 {
			end = seen + i
		}
		seen = len(p.in)
		return end >= 0
	})
	if err != nil {
		return "", err
	}
	line := string(p.in[:end])
	p.in = p.in[end+1:]
	return line, nil
}

func (p *player) expectLine(verb, text string) {
	p.Helper()
	got, err := p.nextLine()
	want := p.expand(text)
	switch {
	case err == nil && (got == want || verb == "<~" && sameElements(got, want)):
	case err == nil && p.update:
		p.script.lines[p.line] = verb + " " + got
	case p.update:
		p.script.dropped[p.line] = true
	case err != nil:
		p.fail("%v, want %s; what came of a line: %s", err, short(want), short(string(p.in)))
	default:
		p.fail("got  %s\nwant %s", short(got), short(want))
	}
}

func (p *player) expectBytes(want string) {
	p.Helper()
	err := p.await(func() bool { return len(p.in) >= len(want) })
	got := string(p.in[:min(len(p.in), len(want))])
	p.in = p.in[len(got):]
	switch {
	case got == want:
	case p.update:
		p.script.lines[p.line] = "<-q " + strconv.Quote(got)
	default:
		p.fail("got  %s (%v)\nwant %s", short(got), err, short(want))
	}
}

func (p *player) expectEnd() {
	p.Helper()
	err := p.await(func() bool { return len(p.in) > 0 })
	switch {
	case errors.Is(err, io.EOF):
		p.closed = true // nothing is left to be closed on our side
	case err == nil:
		p.surplus()
	default:
		p.fail("the server has not ended the connection")
	}
}

// finish sees to it that nothing more comes.
func (p *player) finish() {
	p.Helper()
	p.send()
	if _, ok := p.conn.(interface{ CloseWrite() error }); !ok {
		return
	}
	if !p.closed {
		p.closeWrite()
	}
	if p.await(func() bool { return len(p.in) > 0 }) == nil {
		p.surplus()
	}
}

// surplus deals with what the script does not know of.
func (p *player) surplus() {
	p.Helper()
	if !p.update {
		p.fail("more has come: %s", short(string(p.in)))
	}
	p.await(func() bool { return false }) //nolint:errcheck // until it is quiet
	more := string(p.in)
	p.in = nil
	at := p.line
	for at == len(p.script.lines) || strings.TrimSpace(p.script.lines[at-1]) == "" {
		at-- // before the blank lines at the end of a section
	}
	add := func(line string) { p.script.added[at] = append(p.script.added[at], line) }
	if text, ok := strings.CutSuffix(more, "\n"); ok && !strings.Contains(text, "\r") {
		for line := range strings.SplitSeq(text, "\n") {
			add("<- " + line)
		}
		return
	}
	add("<-q " + strconv.Quote(more))
}

var repetition = regexp.MustCompile(`\$\{([^}]*)\*([0-9]+)\}`)

// longestText is how long a repetition may become, in bytes.
const longestText = 64 << 20

// expand replaces ${TEXT*N} by N times TEXT, 64 MiB at most.
func (p *player) expand(text string) string {
	p.Helper()
	return repetition.ReplaceAllStringFunc(text, func(m string) string {
		part := repetition.FindStringSubmatch(m)
		n, err := strconv.Atoi(part[2])
		if err != nil || n > longestText/max(len(part[1]), 1) {
			p.fail("%s is too long", m)
		}
		return strings.Repeat(part[1], n)
	})
}

func (p *player) unquote(text string) string {
	p.Helper()
	s, err := strconv.Unquote(text)
	if err != nil {
		p.fail("%s is no Go string literal", text)
	}
	return s
}

// sameElements says whether two texts are arrays of the same elements, in any
// order, each byte for byte.
func sameElements(a, b string) bool {
	var x, y []json.RawMessage
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	byText := func(a, b json.RawMessage) int { return bytes.Compare(a, b) }
	slices.SortFunc(x, byText)
	slices.SortFunc(y, byText)
	return slices.EqualFunc(x, y, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
}
