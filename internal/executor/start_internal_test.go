package executor

import (
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

// TestLimits_KeysAndLabelsInCharacters: a letter that takes two bytes is one
// character, as it is for the API.
func TestLimits_KeysAndLabelsInCharacters(t *testing.T) {
	letters := func(n int) string { return strings.Repeat("é", n) }
	labelled := func(name, value string) error {
		return checkStart(parley.StartRequest{Labels: map[string]string{name: value}})
	}
	keyed := func(n int) error { return checkStart(parley.StartRequest{IdempotencyKey: letters(n)}) }
	again := func(n int) error { _, err := onceOf(letters(n), nil); return err }
	for name, tt := range map[string]struct {
		fits, tooLong error
		text          string
	}{
		"key of a start":  {keyed(255), keyed(256), "256 characters"},
		"key of a retry":  {again(255), again(256), "256 characters"},
		"name of a label": {labelled(letters(256), "a"), labelled(letters(257), "a"), "at most 256 characters"},
		"its value":       {labelled("a", letters(256)), labelled("a", letters(257)), "at most 256 characters"},
	} {
		if tt.fits != nil {
			t.Errorf("%s: %v", name, tt.fits)
		}
		if err := tt.tooLong; parley.CodeOf(err) != parley.CodeLimit || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v, want %q", name, err, tt.text)
		}
	}
}
