package main

import (
	"encoding/json"
	"testing"

	"github.com/parley-project/parley"
)

// TestApproveCommandFitsTheForm checks that what people are told to type is not refused
// for the data that is missing.
func TestApproveCommandFitsTheForm(t *testing.T) {
	t.Parallel()
	const command = "parley run answer r s --choice approve --as ME"
	for form, want := range map[string]string{
		"":                           command,
		`{}`:                         command,
		`{"type":["object","null"]}`: command,
		`{"type":"object"}`:          command + ` --data '{}'`,
		`{"type":"string"}`:          command + ` --data '"..."'`,
		`{"type":"object","required":["centre","sum"],"properties":{"centre":{"type":"string"},"sum":{"type":"number"},"note":{"type":"string"}}}`: command + ` --data '{"centre": "...", "sum": 1}'`,
		`{"type":"object","required":["it's"]}`: command + " --data @FILE",
	} {
		if got := approveCommand("r", "s", &parley.Approval{Choices: []string{"approve", "reject"}, Form: json.RawMessage(form)}); got != want {
			t.Errorf("%s: %s, want %s", form, got, want)
		}
	}
	got := approveCommand("r", "s", &parley.Approval{Choices: []string{"reject"}, Form: json.RawMessage(`{"type":"object"}`)})
	if want := "parley run answer r s --choice reject --as ME"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
