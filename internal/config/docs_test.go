package config_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-project/parley/internal/config"
)

var updateDocs = flag.Bool("update", false, "write the table of settings into docs/operations.md")

const (
	tableBegins = "<!-- settings: written by go test ./internal/config -update -->\n"
	tableEnds   = "<!-- end of settings -->\n"
)

// TestOperationsPage holds the table of docs/operations.md to the settings.
func TestOperationsPage(t *testing.T) {
	var table strings.Builder
	table.WriteString("| setting | default | what it does |\n|---|---|---|\n")
	for _, v := range mustLoad(t, "", nil, nil).View() {
		s := settingOf(v.Path)
		value := s.DefaultText()
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", v.Path, value, strings.ReplaceAll(s.Help, "|", `\|`))
	}
	file := filepath.Join("..", "..", "docs", "operations.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), tableBegins)
	_, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		t.Fatal("the page has no place for the table")
	}
	want := before + tableBegins + table.String() + tableEnds + after
	if *updateDocs {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if string(page) != want {
		t.Error("the table of settings is not that of the program: go test ./internal/config -update")
	}
}

func settingOf(path string) config.Setting {
	for _, s := range config.Settings() {
		if s.Path == path {
			return s
		}
	}
	return config.Setting{}
}
