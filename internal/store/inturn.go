package store

// inTurn gives a page, of at most limit, of a list of rows that want attention. The
// caller may not be able to attend to some of them for as long as it takes, and they
// stay where they are: so where there may be more, the next page of that list goes
// on behind this one, and begins anew at the end. P is where a row stands in the
// list, its zero value before all; read gives a page, and where its last row stands.
func inTurn[T, P any](db *DB, list string, limit int, read func(after P) (page []T, last P, err error)) ([]T, error) {
	var first, after P
	began := true
	if p, ok := db.pages.Load(list); ok {
		after, began = p.(P), false
	}
	page, last, err := read(after)
	if err == nil && len(page) == 0 && !began {
		page, last, err = read(first)
	}
	if err != nil {
		return nil, err
	}
	if limit > 0 && len(page) == limit {
		db.pages.Store(list, last)
	} else {
		db.pages.Delete(list)
	}
	return page, nil
}

// dueAt is where a row stands in a list that is in the order of a time.
type dueAt struct {
	at int64
	id string
}
