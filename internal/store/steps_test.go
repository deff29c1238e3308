package store

import (
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

// TestSchemaSteps: both databases have the same steps, numbered without a gap, and each
// can be undone.
func TestSchemaSteps(t *testing.T) {
	lite, post := must(schemaSteps("migrations/sqlite"))(t), must(schemaSteps("migrations/postgres"))(t)
	if len(lite) == 0 || len(lite) != len(post) {
		t.Fatalf("%d steps with SQLite, %d with PostgreSQL", len(lite), len(post))
	}
	for i, s := range lite {
		if s.version != int64(i+1) || s.name != post[i].name || post[i].version != s.version {
			t.Errorf("step %d is %d %s with SQLite, and %d %s with PostgreSQL", i+1, s.version, s.name, post[i].version, post[i].name)
		}
		for _, part := range []string{s.up, s.down, post[i].up, post[i].down} {
			if !strings.Contains(part, ";") || strings.Contains(part, "+goose Up") || strings.Contains(part, "+goose Down") {
				t.Errorf("%s: a part is %q", s.name, part)
			}
		}
	}
}

// TestParseStep takes a file apart, and refuses one that has not both parts.
func TestParseStep(t *testing.T) {
	s := must(parseStep("00007_seven.sql", "-- why\n\n-- +goose Up\nA;\n\n-- +goose Down\nB;\n"))(t)
	if want := (schemaStep{7, "00007_seven.sql", "A;\n", "B;\n"}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	if s := must(parseStep("1_one.sql", "-- +goose Up\nA;\n\n-- +goose Down\n"))(t); s.up != "A;\n" || s.down != "" {
		t.Errorf("%+v", s)
	}
	for name, text := range map[string]string{
		"seven.sql": "-- +goose Up\nA;\n-- +goose Down\nB;\n",
		"1_one.sql": "-- +goose Up\nA;\n",
		"2_two.sql": "A;\n-- +goose Down\nB;\n",
	} {
		_, err := parseStep(name, text)
		wantCode(t, err, parley.CodeInternal)
	}
}
