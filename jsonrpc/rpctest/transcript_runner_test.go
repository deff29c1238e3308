package rpctest

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
)

// halfConn is an end of net.Pipe that can be closed in one direction, the way
// a test server below understands it: by the line "\x00".
type halfConn struct{ net.Conn }

func (c halfConn) CloseWrite() error {
	_, err := c.Write([]byte("\x00\n"))
	return err
}

// parrot answers each line with the lines behind its "|"s, and "bye" by hanging
// up, as the end of the other side.
func parrot() io.ReadWriteCloser {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		for in := bufio.NewScanner(server); in.Scan() && in.Text() != "\x00" && in.Text() != "bye"; {
			if _, answer, ok := strings.Cut(in.Text(), "|"); ok {
				io.WriteString(server, strings.ReplaceAll(answer, "|", "\n")+"\n")
			}
		}
	}()
	return halfConn{client}
}

// playText plays a section and returns what failed, and the updated script. In its
// bubble patience ends only when nothing more can come.
func playText(t *testing.T, text string, update bool) (string, string) {
	t.Helper()
	s := parseScript("x.txtar", "about\n-- s --\n"+text)
	var failures []string
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			p := &player{TB: r, script: s, patience: patience, update: update}
			p.play(s.sections[0], parrot())
		}()
		<-done
		failures = r.failures
	})
	return strings.Join(failures, "; "), strings.TrimPrefix(s.text(), "about\n-- s --\n")
}

// Each kind of line, when it is met and when it is not; with -update the script
// becomes what has come.
func TestTranscriptSteps(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text    string
		failure string // empty: it passes
		updated string // empty: text
	}{
		"met":                     {"# all\n-> a|b\n\n<- b\n", "", ""},
		"no answer wanted":        {"-> a\n", "", ""},
		"two answers":             {"-> a|b|c\n<- b\n<- c\n", "", ""},
		"other answer":            {"-> a|b\n<- c\n", `x.txtar:4: got  "b"`, "-> a|b\n<- b\n"},
		"no answer":               {"-> a\n<- b\n", "nothing came in time", "-> a\n"},
		"more than wanted":        {"-> a|b|c\n<- b\n\n", `more has come: "c\n"`, "-> a|b|c\n<- b\n<- c\n\n"},
		"not the whole line":      {"-> a|bc\n<- b\n", `got  "bc"`, "-> a|bc\n<- bc\n"},
		"pieces":                  {"->- a|\n!split\n-> b\n<- b\n", "", ""},
		"quoted":                  {`->q "a|\tb\n"` + "\n" + `<-q "\tb\n"` + "\n", "", ""},
		"quoted, other bytes":     {`->q "a|b\n"` + "\n" + `<-q "c\n"` + "\n", `want "c\n"`, `->q "a|b\n"` + "\n" + `<-q "b\n"` + "\n"},
		"quoted, too few":         {`->q "a|b\n"` + "\n" + `<-q "b\nc"` + "\n", `want "b\nc"`, `->q "a|b\n"` + "\n" + `<-q "b\n"` + "\n"},
		"repeated":                {"-> a|${xy*3}\n<- xyxyxy\n", "", ""},
		"repeated too often":      {"-> a|${xy*9223372036854775807}\n", "is too long", ""},
		"repeated far too often":  {"-> a|${xy*99999999999999999999}\n", "is too long", ""},
		"repeated never":          {"-> a|${xy*0}${*7}b\n<- b\n", "", ""},
		"any order":               {"-> a|[1,{\"a\":2}]\n<~ [{\"a\":2},1]\n", "", ""},
		"any order, other":        {"-> a|[1,2]\n<~ [2,2]\n", "got", "-> a|[1,2]\n<~ [1,2]\n"},
		"order matters otherwise": {"-> a|[1,2]\n<- [2,1]\n", "got", "-> a|[1,2]\n<- [1,2]\n"},
		"end":                     {"-> bye\n!eof\n", "", ""},
		"no end":                  {"-> a\n!eof\n", "has not ended", ""},
		"end, but more":           {"-> a|b\n-> bye\n!eof\n", "more has come", "-> a|b\n-> bye\n<- b\n!eof\n"},
		"our end":                 {"-> a|b\n!close\n<- b\n!eof\n", "", ""},
		"unknown line":            {"=> a\n", `x.txtar:3: "=> a" begins with none of`, ""},
		"no literal":              {"->q a\n", "no Go string literal", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failure, same := playText(t, tt.text, false)
			if (failure == "") != (tt.failure == "") || !strings.Contains(failure, tt.failure) {
				t.Errorf("failure %q, want %q", failure, tt.failure)
			}
			if same != tt.text {
				t.Errorf("the script changed without -update: %q", same)
			}
			if tt.updated == "" {
				tt.updated = tt.text
			}
			if _, updated := playText(t, tt.text, true); updated != tt.updated {
				t.Errorf("updated %q, want %q", updated, tt.updated)
			}
			if tt.updated != tt.text {
				if failure, _ := playText(t, tt.updated, false); failure != "" {
					t.Errorf("the updated script fails: %s", failure)
				}
			}
		})
	}
}
