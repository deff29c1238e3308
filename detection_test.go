package parley_test

import (
	"encoding/json"
	"testing"

	"github.com/parley-project/parley"
)

func TestReadDetection(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		``: false, `null`: false, `{}`: false, `[]`: false, `{"protocol":`: false,
		`{"protocol":"jsonrpc-2.0","url":"http://a/","later":1}`: true,
	} {
		d, ok := parley.ReadDetection(json.RawMessage(text))
		if ok != want || ok != (d.URL == "http://a/") {
			t.Errorf("%q: %v, %v", text, d, ok)
		}
	}
}
