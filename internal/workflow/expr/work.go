package expr

import (
	"regexp"

	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// The price of a call is added up once it has returned (rule E11). Of the functions here
// the work grows with the square of what they are given, or nearly so: one call with a
// value of the size that is allowed would take hours. They are not called if what is
// known of their price before passes the limit by itself; that is never more than what
// is asked for afterwards.

// workOf gives what prices the arguments of a function; nil for one that needs no look.
func workOf(function string) func(args []ref.Val) uint64 {
	switch function {
	case "distinct":
		return func(args []ref.Val) uint64 { return 2 * product(args[0], args[0]) }
	case "hasOnly", "hasAny", "hasAll":
		return func(args []ref.Val) uint64 { return product(args[0], args[1]) }
	case "hasExactly":
		return func(args []ref.Val) uint64 { return 2 * product(args[0], args[1]) }
	case "sort", "@sortByAssociatedKeys":
		return func(args []ref.Val) uint64 { return cost.ActualSize(args[0]) }
	case "indexOf", "lastIndexOf":
		return func(args []ref.Val) uint64 { return product(args[0], args[1]) / 10 }
	case overloads.Matches:
		return func(args []ref.Val) uint64 { return product(args[0], args[1]) / 40 }
	}
	return nil
}

func product(a, b ref.Val) uint64 { return cost.ActualSize(a) * cost.ActualSize(b) }

// weighed makes a call that is refused if its work would be too much.
func weighed(call interpreter.InterpretableCall, do func(args []ref.Val) ref.Val) interpreter.InterpretableCall {
	work := workOf(call.Function())
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		if work(args) > maxCost {
			return types.WrapErr(tooMuch("expression_cost", maxCost, "units"))
		}
		return do(args)
	})
}

// weigh is a decorator of plans: calls whose work may be too much are weighed, and those
// that sort do it by the order of this language.
func (e *environment) weigh(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || workOf(call.Function()) == nil {
		return i, nil
	}
	bindings, err := e.cel.Functions()[call.Function()].Bindings()
	if err != nil {
		return nil, err
	}
	var found *functions.Overload
	for _, b := range bindings {
		if b.Operator == call.OverloadID() || found == nil && b.Operator == call.Function() {
			found = b
		}
	}
	if found == nil {
		return i, nil
	}
	do := caller(found)
	if own := e.sorting(call.Function()); own != nil {
		do = own
	}
	return weighed(call, func(args []ref.Val) ref.Val {
		if trait := found.OperandTrait; trait != 0 && !args[0].Type().HasTrait(trait) {
			return types.MaybeNoSuchOverloadErr(args[0])
		}
		return do(args)
	}), nil
}

// weighedPatterns are for matches with a pattern that is known beforehand: it is compiled
// once, as CEL does it, and the call is weighed.
func weighedPatterns() (patterns []*interpreter.RegexOptimization) {
	for _, overload := range []string{overloads.Matches, overloads.MatchesString} {
		patterns = append(patterns, &interpreter.RegexOptimization{
			Function: overloads.Matches, OverloadID: overload, RegexIndex: 1,
			Factory: func(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
				re, err := regexp.Compile(pattern)
				if err != nil {
					return nil, err
				}
				return weighed(call, func(args []ref.Val) ref.Val {
					text, ok := args[0].(types.String)
					if !ok {
						return types.MaybeNoSuchOverloadErr(args[0])
					}
					return types.Bool(re.MatchString(string(text)))
				}), nil
			},
		})
	}
	return patterns
}
