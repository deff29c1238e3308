package rpcdial

import (
	"crypto/tls"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCommandWords: blanks divide the words of a command, quotes keep them together,
// and nothing else means anything.
func TestCommandWords(t *testing.T) {
	for text, want := range map[string][]string{
		``:                        nil,
		" \t ":                    nil,
		`a`:                       {"a"},
		" a\tb  c ":               {"a", "b", "c"},
		`a "b c" 'd e'`:           {"a", "b c", "d e"},
		`a "b"'c'd`:               {"a", "bcd"},
		`a "" ''`:                 {"a", "", ""},
		`a "it's" 'say "x"'`:      {"a", "it's", `say "x"`},
		`a "\"b\" \\ \n"`:         {"a", `"b" \ \n`},
		`a 'b\' "c\\"`:            {"a", `b\`, `c\`},
		`C:\dir\prog.exe \"x`:     nil,
		`C:\dir\prog.exe "x\y" \`: {`C:\dir\prog.exe`, `x\y`, `\`},
		`a "b`:                    nil,
		`a "b\"`:                  nil,
		`a "b\`:                   nil,
		`a '`:                     nil,
		`a 'b\"c' 'd\\'`:          {"a", `b\"c`, `d\\`},
		`"" a`:                    nil,
		`$HOME *`:                 {"$HOME", "*"},
	} {
		got, err := splitCommand(text)
		if !slices.Equal(got, want) || (err == nil) != (want != nil || strings.TrimSpace(text) == "") {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}

// TestTargets: what becomes of URLs that name a place, and those that are refused
// since they say more than that.
func TestTargets(t *testing.T) {
	for url, want := range map[string]string{
		"tcp://h:1":             "h:1",
		"tcp://h:1/":            "h:1",
		"tls+lsp://[::1]:4000":  "[::1]:4000",
		"tcp://[fe80::1%25e]:1": "[fe80::1%e]:1",
		"tcp://:1":              ":1",
		"unix:/run/x.sock":      "/run/x.sock",
		"unix:x.sock":           "x.sock",
		"unix:///run/x y%20":    "/run/x y%20",
		"unix+lsp:a//b":         "a//b",
		"tcp://h:1?x":           "",
		"tcp://h:1#x":           "",
		"tcp://h:1/x":           "",
		"tcp://u@h:1":           "",
		"tcp://h":               "",
		"tcp://h:":              "",
		"tcp://":                "",
		"tcp:///x":              "",
		"tcp://h:x":             "",
		"tcp:h:1":               "",
		"unix:":                 "",
		"unix://":               "",
		"unix://h/x":            "",
	} {
		got, err := parse(url)
		if got.address != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", url, got.address, err, want)
		}
	}
}

// TestServeTargets: what a server is not told to serve, and what it wants for TLS.
func TestServeTargets(t *testing.T) {
	for _, url := range []string{"ws://", "ws:///p", "ws://u:p@127.0.0.1:0/", "ws://127.0.0.1:0/#x", "ws://127.0.0.1:0/?x", "ws://127.0.0.1:x/"} {
		err := Listen(t.Context(), url, Config{}, nil)
		if err == nil || !strings.Contains(err.Error(), "write it with a host, a port and a path") {
			t.Errorf("%s: %v", url, err)
		}
	}
	certificates := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
	configs := func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
	for _, tt := range []struct {
		cfg  *tls.Config
		fits bool
	}{
		{nil, false},
		{&tls.Config{}, false},
		{&tls.Config{Certificates: make([]tls.Certificate, 1)}, true},
		{&tls.Config{GetCertificate: certificates}, true},
		{&tls.Config{GetConfigForClient: configs}, true},
	} {
		ln, err := Config{TLS: tt.cfg}.listener(t.Context(), target{scheme: "tls", address: "127.0.0.1:0"})
		if (err == nil) != tt.fits {
			t.Errorf("%+v: %v", tt.cfg, err)
		}
		if err == nil {
			ln.Close()
		}
	}
	at := target{scheme: "unix", headers: true, address: filepath.Join("rel", "s")}
	if got := at.at(nil); got != "unix+lsp:rel/s" {
		t.Error(got)
	}
}
