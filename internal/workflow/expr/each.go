package expr

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// EachInfo is `each` and `loop`: the iteration that an expression stands in.
type EachInfo struct {
	// Item is nil in a repeat.
	Item json.RawMessage
	// Index counts from 0; Total is the number of items, or the most
	// iterations of a repeat.
	Index, Total int
	First, Last  bool
	// Previous is nil in the first iteration, and where iterations run side by
	// side.
	Previous *PreviousInfo
	// Parent is the iteration of the loop around; nil for the outermost.
	Parent *EachInfo
}

// PreviousInfo is `each.previous`: the body steps of the previous iteration.
type PreviousInfo struct {
	// IDs are the steps that the map has, in any order.
	IDs []string
	// Step gives their state.
	Step func(id string) (info StepInfo, ok bool)
}

// LoopAt is one loop around an expression.
type LoopAt struct {
	// Parallel is set for a loop that runs iterations side by side: none of
	// them comes before another, so `each.previous` is not in scope.
	Parallel bool
}

// value gives a member of `loop`, as JSON.
func (e *EachInfo) value(name string) json.RawMessage {
	switch name {
	case "index":
		return strconv.AppendInt(nil, int64(e.Index), 10)
	case "total":
		return strconv.AppendInt(nil, int64(e.Total), 10)
	case "is_first":
		return strconv.AppendBool(nil, e.First)
	case "is_last":
		return strconv.AppendBool(nil, e.Last)
	}
	return trim(e.Item)
}

// each makes the record of an iteration; null if there is none.
func (a *activation) each(e *EachInfo) ref.Val {
	if e == nil {
		return types.NullValue
	}
	return &record{typ: a.env.records.each, make: func(field string) ref.Val {
		switch field {
		case "parent":
			return a.each(e.Parent)
		case "previous":
			return a.previous(e.Previous)
		}
		return a.env.adapter.fromJSON(rawJSON(e.value(field)))
	}}
}

func (a *activation) previous(p *PreviousInfo) ref.Val {
	if p == nil {
		return types.NullValue
	}
	steps := make(map[string]any, len(p.IDs))
	for _, id := range p.IDs {
		steps[id] = a.stepRecord(lookIn(p.Step, id))
	}
	return sorted(types.NewStringInterfaceMap(a.env.adapter, steps))
}

// checkLoop gives what is wrong with a path reference to a loop.
func (p *path) checkLoop(at At) []Finding {
	if len(at.Each) == 0 {
		if strings.HasPrefix(p.text, "each.") {
			return []Finding{outOfScope("each", "loops")}
		}
		return []Finding{{Code: CodeReference, Text: "`loop." + p.name + "` is in scope inside a loop only"}}
	}
	if p.name != "item" && len(p.segments) > 0 {
		return []Finding{{Code: CodeReference, Text: "`loop." + p.name + "` has no members and no items"}}
	}
	return nil
}

// each checks what is selected from `each`.
func (k *checker) each(chain []access) {
	loops := k.at.Each
	if len(loops) == 0 {
		k.add(outOfScope("each", "loops"))
		return
	}
	for len(chain) > 0 && chain[0].name == "parent" {
		loops, chain = loops[1:], chain[1:]
		if len(loops) > 0 {
			continue
		}
		if len(chain) > 0 && !chain[0].soft {
			k.add(Finding{Code: CodeExpression, Text: "`each.parent` of the outermost loop is null"})
		}
		return
	}
	if len(chain) == 0 || chain[0].name != "previous" {
		return
	}
	if loops[0].Parallel {
		k.add(Finding{
			Code: CodeExpression, Text: "`each.previous` is in scope in loops that run one iteration at a time only",
			Suggestion: "leave out `max_parallel`",
		})
		return
	}
	k.previous(chain[1:])
}

// previous checks what is selected from `each.previous`, whose static type
// says nothing because it may be null.
func (k *checker) previous(chain []access) {
	if len(chain) == 0 || chain[0].index {
		return
	}
	id := chain[0].name
	if !k.c.known[id] {
		k.add(k.c.unknownStep(id))
		return
	}
	if len(chain) == 1 || chain[1].index {
		return
	}
	if fields := k.env.records.step.names(); !slices.Contains(fields, chain[1].name) {
		k.add(k.c.noMember(chain[1].name, fields))
		return
	}
	if chain[1].name == "output" {
		k.members(k.c.steps[id], "each.previous."+id+".output", chain[2:])
	}
}
