package parley_test

import (
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

func TestCheckAlias(t *testing.T) {
	for alias, ok := range map[string]bool{
		"stable": true, "a": true, "v1.2-rc_3": true, strings.Repeat("a", 64): true,
		"": false, "1": false, "1a": false, "Stable": false, "a b": false, "a@b": false, "ä": false, "-a": false, strings.Repeat("a", 65): false,
	} {
		if err := parley.CheckAlias(alias); (err == nil) != ok || err != nil && parley.CodeOf(err) != parley.CodeInvalid {
			t.Errorf("%q: %v", alias, err)
		}
	}
}
