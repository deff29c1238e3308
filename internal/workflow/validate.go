package workflow

import (
	"errors"

	"github.com/parley-project/parley"
)

// completeValidate checks that a validate step says what is checked, and by
// which schema.
func (p *parser) completeValidate(s *parseStep) {
	if s.seen["validate"] == nil {
		p.missing(s.node, "validate", "a step of kind validate needs the member validate, the value that is checked")
	}
	if s.seen["schema"] == nil {
		p.missing(s.node, "schema", "a step of kind validate needs the member schema, which the value has to fit")
	}
}

// beginValidate checks a value in the event in which the step starts. Its schema
// is that of the value, whatever `output` makes of it.
func (a *decider) beginValidate(x *execution) {
	v, err := x.step.Validate.Eval(a.scope(x))
	if err == nil {
		err = a.fits("validate", v)
	}
	if err == nil {
		err = validationFailure(x.step.Schema.Check(v))
	}
	if err != nil {
		a.fail(x, asError(err), attemptEnd{})
		return
	}
	a.complete(x, v, completion{})
}

// validationFailure says what keeps a value from fitting: details lists the
// places.
func validationFailure(err error) error {
	if err == nil {
		return nil
	}
	failed := parley.Errorf(parley.CodeValidationFailed, "The value does not fit the schema: %v", err)
	if fault, ok := errors.AsType[*SchemaError](err); ok {
		return failed.WithDetails(fault.Findings)
	}
	return failed
}
