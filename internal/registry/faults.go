package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/parley-project/parley"
)

// The codes of faults, as in the problems of documents.
const (
	faultRequired   = "required"
	faultType       = "type"
	faultValue      = "value"
	faultLimit      = "limit"
	faultReference  = "reference"
	faultProtocol   = "unsupported_protocol"
	faultConfig     = "protocol_config"
	faultSyntax     = "syntax"
	faultDuplicate  = "duplicate_key"
	faultUnknown    = "unknown_member"
	maxFaultsInText = 5
)

// fault is one thing that is wrong with what a caller says about an agent.
// Path names the member as the API does, Detail never quotes a value that may
// be a credential.
type fault struct {
	Path   string `json:"path"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

type faults []fault

func (f *faults) add(path, code, format string, args ...any) {
	*f = append(*f, fault{path, code, fmt.Sprintf(format, args...)})
}

// err gives nil without faults, else a [*parley.Error] of code invalid whose
// details are all of them, and whose message begins with what.
func (f *faults) err(what string) error {
	if len(*f) == 0 {
		return nil
	}
	var text strings.Builder
	for i, x := range *f {
		if i == maxFaultsInText {
			fmt.Fprintf(&text, " (and %d more)", len(*f)-i)
			break
		}
		if i > 0 {
			text.WriteString("; ")
		}
		fmt.Fprintf(&text, "%s: %s", x.Path, x.Detail)
	}
	return parley.Errorf(parley.CodeInvalid, "%s is not valid: %s", what, text.String()).WithDetails([]fault(*f))
}

// detailsOf gives back the faults of an error that [faults.err] made.
func detailsOf(err error) faults {
	e, ok := errors.AsType[*parley.Error](err)
	if !ok {
		return nil
	}
	var f []fault
	if json.Unmarshal(e.Details, &f) != nil {
		return nil
	}
	return f
}
