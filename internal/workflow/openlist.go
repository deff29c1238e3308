package workflow

import (
	"iter"
	"slices"
)

// openList holds the executions that run, in the order in which they began to. An
// end takes the same time however many there are: a place is left empty, until half
// of them are.
type openList struct {
	places []*execution // nil is empty
	empty  int
}

func (l *openList) add(x *execution) {
	x.place = len(l.places)
	l.places = append(l.places, x)
}

// remove takes out what is in the list.
func (l *openList) remove(x *execution) {
	l.places[x.place] = nil
	if l.empty++; l.empty <= len(l.places)/2 {
		return
	}
	l.places, l.empty = slices.DeleteFunc(l.places, func(o *execution) bool { return o == nil }), 0
	for i, o := range l.places {
		o.place = i
	}
}

// all gives those that run; what is asked meanwhile must not change which.
func (l *openList) all() iter.Seq[*execution] {
	return func(yield func(*execution) bool) {
		for _, x := range l.places {
			if x != nil && !yield(x) {
				return
			}
		}
	}
}

// now gives those that run, for somebody who changes which.
func (l *openList) now() []*execution { return slices.Collect(l.all()) }
