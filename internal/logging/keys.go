package logging

// SensitiveKey reports whether what stands under key is a credential: whether
// it ends in one of the words below. Letter case and the separators "-", "_",
// "." and space don't matter: X-Api-Key, xApiKey and x_api_key are one.
// It does not allocate.
func SensitiveKey[S ~string | ~[]byte](key S) bool {
	if len(key) == 0 {
		return false
	}
	// Most keys end in a letter that none of the words ends in.
	switch key[len(key)-1] | 0x20 {
	case 'n':
		return endsWith(key, "authorization") || endsWith(key, "token")
	case 't':
		return endsWith(key, "secret")
	case 'd':
		return endsWith(key, "password") || endsWith(key, "passwd") || endsWith(key, "pwd")
	case 'e':
		return endsWith(key, "cookie") || endsWith(key, "passphrase")
	case 'y':
		return endsWith(key, "apikey") || endsWith(key, "privatekey") || endsWith(key, "secretkey") || endsWith(key, "accesskey")
	case 'l':
		return endsWith(key, "credential")
	case 's':
		return endsWith(key, "credentials") || endsWith(key, "secrets") || endsWith(key, "passwords") || endsWith(key, "cookies")
	case 'g':
		return endsWith(key, "authconfig") // of an old agent record
	}
	return false
}

// endsWith compares from the end, past separators. word is in lower case.
func endsWith[S ~string | ~[]byte](key S, word string) bool {
	i := len(key) - 1
	for j := len(word) - 1; j >= 0; j-- {
		for i >= 0 && (key[i] == '-' || key[i] == '_' || key[i] == '.' || key[i] == ' ') {
			i--
		}
		if i < 0 || key[i]|0x20 != word[j] {
			return false
		}
		i--
	}
	return true
}
