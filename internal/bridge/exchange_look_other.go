//go:build !unix

package bridge

// look cannot see anything here: the connection counts as closed, and is not
// used again.
func (c *directConn) look(uintptr) bool { return true }
