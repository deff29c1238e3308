package expr

import (
	"fmt"
	"maps"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/decls"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/parser"
)

// environment is what CEL knows about one workflow.
type environment struct {
	cel     *cel.Env
	parser  *parser.Parser
	adapter adapter
	records *recordTypes
	// steps are the ids that are variables too (rule E4).
	steps map[string]bool
	// typeNames are ids that are names of CEL types: in `int.output` the step
	// is meant, in `type(x) == int` the type.
	typeNames map[string]bool
	// names are all variables, functions all functions, for suggestions.
	names, functions []string
}

// variables are the names of rule E4 that are always declared; which of them
// are in scope is checked for each expression.
func variables(r *recordTypes) map[string]*cel.Type {
	return map[string]*cel.Type{
		"workflow": r.workflow.self,
		"run":      r.run.self,
		"now":      cel.TimestampType,
		"steps":    cel.MapType(cel.StringType, r.step.self),
		"result":   cel.DynType,
		"error":    r.fail.self,
		"each":     r.each.self,
		"event":    cel.DynType,
		"plan":     r.plan.self,
	}
}

// isIdentifier reports whether CEL can read name as a variable.
func isIdentifier(name string) bool {
	for i := range len(name) {
		if c := name[i]; c >= 0x80 || !identByte(c) || i == 0 && c >= '0' && c <= '9' {
			return false
		}
	}
	return name != "" && !reserved(name)
}

// reserved are the words of CEL that cannot be variables.
func reserved(word string) bool {
	switch word {
	case "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if",
		"import", "let", "loop", "package", "namespace", "return", "var", "void", "while":
		return true
	}
	return false
}

// newEnvironment builds the environment. It takes milliseconds.
func newEnvironment(stepIDs, values []string) (*environment, error) {
	e := &environment{records: newRecordTypes(), steps: map[string]bool{}, typeNames: map[string]bool{}}
	options := []cel.EnvOption{
		cel.StdLib(cel.StdLibSubset(env.NewLibrarySubset().AddExcludedFunctions(
			env.NewFunction(operators.Add), env.NewFunction(operators.Subtract),
			env.NewFunction(operators.Multiply), env.NewFunction(operators.Divide),
		))),
		cel.OptionalTypes(cel.OptionalTypesVersion(4)),
		ext.Bindings(ext.BindingsVersion(1)),
		ext.Strings(ext.StringsVersion(5)),
		ext.Lists(ext.ListsVersion(5), ext.ListsMaxRangeSize(maxElements)),
		ext.Math(ext.MathVersion(3)),
		ext.Encoders(ext.EncodersVersion(0)),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.RegexProgramSizeLimit(maxRegex),
		cel.ParserExpressionSizeLimit(maxText),
		cel.ASTValidators(unchecked{}),
		e.withTypes,
	}
	options = append(options, arithmetic()...)
	options = append(options, e.ownFunctions()...)
	bounded, err := boundedStrings()
	if err != nil {
		return nil, err
	}
	options = append(options, bounded...)
	declared := variables(e.records)
	for _, name := range values {
		declared[name] = cel.DynType
	}
	types, err := types.NewRegistry()
	if err != nil {
		return nil, fmt.Errorf("build CEL types: %w", err)
	}
	for _, id := range stepIDs {
		if _, taken := declared[id]; taken || !isIdentifier(id) {
			continue
		}
		if _, ok := types.FindIdent(id); ok {
			e.typeNames[id] = true
			continue
		}
		declared[id], e.steps[id] = e.records.step.self, true
	}
	e.names = slices.Sorted(maps.Keys(declared))
	vars := make([]*decls.VariableDecl, 0, len(declared))
	for _, name := range e.names {
		vars = append(vars, decls.NewVariable(name, declared[name]))
	}
	options = append(options, cel.VariableDecls(vars...))
	if e.cel, err = cel.NewCustomEnv(options...); err != nil {
		return nil, fmt.Errorf("build CEL environment: %w", err)
	}
	if e.parser, err = newParser(e.cel); err != nil {
		return nil, err
	}
	for name := range e.cel.Functions() {
		if isIdentifier(name) {
			e.functions = append(e.functions, name)
		}
	}
	slices.Sort(e.functions)
	return e, nil
}

// withTypes puts the records and the JSON values in front of CEL's own types.
func (e *environment) withTypes(env *cel.Env) (*cel.Env, error) {
	e.adapter = adapter{env.CELTypeAdapter()}
	env, err := cel.CustomTypeAdapter(e.adapter)(env)
	if err != nil {
		return nil, err
	}
	return cel.CustomTypeProvider(&provider{Provider: env.CELTypeProvider(), records: e.records})(env)
}

// program plans a checked expression with the limits of rule E11.
func (e *environment) program(ast *cel.Ast) (cel.Program, error) {
	return e.cel.Program(ast,
		cel.CustomDecoratorV2(orderMaps),
		cel.CustomDecoratorV2(e.weigh),
		cel.OptimizeRegex(weighedPatterns()...),
		cel.EvalOptions(cel.OptOptimize),
		cel.CostTracking(costs{}),
		cel.CostLimit(maxCost),
	)
}
