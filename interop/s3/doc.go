// Package s3 tests the store of values that is a bucket against a server that
// others have written, VersityGW, which the tests build and start themselves.
package s3
