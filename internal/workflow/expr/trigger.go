package expr

import (
	"fmt"
	"slices"
)

// trigger checks a name in an expression of a trigger: there is no run yet, so
// there is the event and what the workflow is called.
func (k *checker) trigger(root string, chain []access) {
	switch {
	case root == "event":
		if len(chain) == 0 || chain[0].index || slices.Contains(k.at.Trigger, chain[0].name) {
			return
		}
		k.add(Finding{
			Code: CodeExpression, Text: fmt.Sprintf("`event` of this trigger has no member %q", chain[0].name),
			Suggestion: k.c.didYouMean(chain[0].name, k.at.Trigger),
		})
	case root == "workflow" && len(chain) > 0 && slices.Contains([]string{"id", "name", "version"}, chain[0].name):
	default:
		k.add(onlyEvent())
	}
}

func onlyEvent() Finding {
	return Finding{Code: CodeExpression, Text: "only `event`, `workflow.id`, `workflow.name` and `workflow.version` are in scope in a trigger"}
}
