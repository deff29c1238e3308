package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestProtocolsPage reads the command lines of docs/protocols.md, of docs/zones.md, and of the
// example agents' page: each is a command that there is, with flags that it has.
func TestProtocolsPage(t *testing.T) {
	t.Parallel()
	for page, least := range map[string]int{"docs/protocols.md": 20, "examples/agents/README.md": 2, "docs/zones.md": 5} {
		text, err := os.ReadFile(filepath.Join("..", "..", page))
		if err != nil {
			t.Fatal(err)
		}
		lines := regexp.MustCompile("(?m)^\\$ (parley .*)$|`(parley [^`]+)`").FindAllStringSubmatch(string(text), -1)
		if len(lines) < least {
			t.Errorf("%s: only %d command lines", page, len(lines))
		}
		for _, m := range lines {
			line := strings.ReplaceAll(m[1]+m[2], `"`, "'")
			var out lockedBuffer
			// Flags are read before help is given.
			code := (&pageSession{t: t}).app(&out).execute(t.Context(), append(words(line)[1:], "--help"))
			command := regexp.MustCompile(`^parley( [a-z]+){1,2}`).FindString(line)
			if code != 0 || !strings.Contains(out.String(), "\n  "+command) {
				t.Errorf("%s: %s gives exit code %d and\n%s", page, line, code, out.String())
			}
		}
	}
}
