package expr

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/decls"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
)

// boundedStrings declares the functions of the strings library that can build
// much from little once more, with the size of their result bounded before it
// is built (rule E11).
func boundedStrings() ([]cel.EnvOption, error) {
	lib, err := cel.NewEnv(ext.Strings(ext.StringsVersion(5)))
	if err != nil {
		return nil, fmt.Errorf("build CEL strings library: %w", err)
	}
	var options []cel.EnvOption
	for name, size := range map[string]func(args []ref.Val) int{
		"replace": replaceSize, "join": joinSize, "format": formatSize,
	} {
		option, err := bound(lib.Functions()[name], size)
		if err != nil {
			return nil, fmt.Errorf("bound %s: %w", name, err)
		}
		options = append(options, option)
	}
	return options, nil
}

// bound wraps every overload of f: nothing is called if size, an upper limit
// of the bytes that the call builds, is too much.
func bound(f *decls.FunctionDecl, size func(args []ref.Val) int) (cel.EnvOption, error) {
	bindings, err := f.Bindings()
	if err != nil {
		return nil, err
	}
	var overloads []cel.FunctionOpt
	for _, o := range f.OverloadDecls() {
		var binding *functions.Overload
		for _, b := range bindings {
			if b.Operator == o.ID() {
				binding = b
			}
		}
		if binding == nil {
			return nil, fmt.Errorf("overload %s has no binding", o.ID())
		}
		call := caller(binding)
		guarded := func(args ...ref.Val) ref.Val {
			if size(args) > maxResult {
				return limitErr(maxResult, "bytes")
			}
			return call(args)
		}
		overloads = append(overloads, cel.MemberOverload(o.ID(), o.ArgTypes(), o.ResultType(), guardBinding(o, guarded)))
	}
	return cel.Function(f.Name(), overloads...), nil
}

func caller(b *functions.Overload) func(args []ref.Val) ref.Val {
	return func(args []ref.Val) ref.Val {
		switch {
		case len(args) == 1 && b.Unary != nil:
			return b.Unary(args[0])
		case len(args) == 2 && b.Binary != nil:
			return b.Binary(args[0], args[1])
		}
		return b.Function(args...)
	}
}

// guardBinding binds with the arity that the planner asks for.
func guardBinding(o *decls.OverloadDecl, f func(args ...ref.Val) ref.Val) cel.OverloadOpt {
	switch len(o.ArgTypes()) {
	case 1:
		return cel.UnaryBinding(func(a ref.Val) ref.Val { return f(a) })
	case 2:
		return cel.BinaryBinding(func(a, b ref.Val) ref.Val { return f(a, b) })
	}
	return cel.FunctionBinding(f)
}

func replaceSize(args []ref.Val) int {
	text, ok1 := args[0].(types.String)
	from, ok2 := args[1].(types.String)
	to, ok3 := args[2].(types.String)
	if !ok1 || !ok2 || !ok3 {
		return 0
	}
	n := strings.Count(string(text), string(from))
	if len(args) == 4 {
		if most, ok := args[3].(types.Int); ok && most >= 0 {
			n = int(min(int64(n), int64(most)))
		}
	}
	return len(text) + n*(len(to)-len(from))
}

func joinSize(args []ref.Val) int {
	separator := 0
	if len(args) == 2 {
		s, _ := args[1].(types.String)
		separator = len(s)
	}
	list, ok := args[0].(traits.Lister)
	if !ok {
		return 0
	}
	size := 0
	for it := list.Iterator(); it.HasNext() == types.True && size <= maxResult; {
		s, _ := it.Next().(types.String)
		size += len(s) + separator
	}
	return max(0, size-separator)
}

// formatSize bounds what format makes of its arguments: two characters for a
// byte (%x), and for numbers what the longest %f and %b need.
func formatSize(args []ref.Val) int {
	const clause = 512
	text, _ := args[0].(types.String)
	list, ok := args[1].(traits.Lister)
	if !ok {
		return 0
	}
	size := len(text)
	for it := list.Iterator(); it.HasNext() == types.True && size <= maxResult; {
		size += clause + printedSize(it.Next())
	}
	return size
}

func printedSize(v ref.Val) int {
	const scalar = 32
	if raw, ok := rawOf(v); ok && len(raw) > maxResult {
		return len(raw)
	}
	size := scalar
	switch v := v.(type) {
	case types.String:
		size = 2 * len(v)
	case types.Bytes:
		size = 2 * len(v)
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && size <= maxResult; {
			size += 2 + printedSize(it.Next())
		}
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True && size <= maxResult; {
			key := it.Next()
			size += 4 + printedSize(key) + printedSize(v.Get(key))
		}
	}
	return size
}
