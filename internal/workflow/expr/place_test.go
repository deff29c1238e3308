package expr

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

// TestE1_FindingsAndErrorsNameTheirPlace: also behind lists and objects that have ended,
// and among names of which a pointer has to escape something.
func TestE1_FindingsAndErrorsNameTheirPlace(t *testing.T) {
	c := document{}.compiler(t)
	for template, want := range map[string][2]string{
		`{"a":[{"x":1},"b",[],["c","%"]]}`:                    {"/a/3/1", "'a.3.1'"},
		`{"a":[[{}]],"~/":{"d":{},"e.f":"%"}}`:                {"/~0~1/e.f", "'~/.e.f'"},
		`{"${x}":{"g":null,"":["%"]}}`:                        {"/${x}//0", "'${x}..0'"},
		`{"g":{"h":[]},"h":"a % b"}`:                          {"/h", "'h'"},
		`"%"`:                                                 {"", "}': Field 'x'"},
		`{"` + strings.Repeat("ä", 9000) + `":{"a":"%"}}`:     {"", "'…" + strings.Repeat("ä", 126) + ".a'"},
		`{"a":[{"` + strings.Repeat("x", 9000) + `":["%"]}]}`: {"/a/0", "'…" + strings.Repeat("x", 253) + ".0'"},
	} {
		_, findings := c.Template(json.RawMessage(strings.ReplaceAll(template, "%", "${}")), At{})
		if len(findings) != 1 || findings[0].Pointer != want[0] {
			t.Errorf("%.60s: findings %+v, want the pointer %s", template, findings, want[0])
		}
		_, err := evalTemplate(t, c, strings.ReplaceAll(template, "%", "${workflow.input.x}"), At{}, document{input: "{}"}.scope())
		wantError(t, err, parley.CodeExpression, want[1])
	}
}
