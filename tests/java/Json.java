import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

/** Writes maps, collections, arrays, strings, numbers, booleans and null as JSON; bytes become hexadecimal text. */
final class Json {

    /** Text that is JSON already. */
    record Raw(String text) {
    }

    static String write(Object value) {
        if (value == null || value instanceof Boolean) {
            return String.valueOf(value);
        } else if (value instanceof Double || value instanceof Float) {
            return value.toString().matches("-?[0-9.E-]+") ? value.toString() : quote(value.toString());
        } else if (value instanceof Number) {
            return value.toString();
        } else if (value instanceof Map<?, ?> map) {
            List<String> members = new ArrayList<>();
            map.forEach((name, member) -> members.add(quote(String.valueOf(name)) + ": " + write(member)));
            return "{" + String.join(", ", members) + "}";
        } else if (value instanceof Collection<?> items) {
            return "[" + String.join(", ", items.stream().map(Json::write).toList()) + "]";
        } else if (value instanceof Object[] items) {
            return write(List.of(items));
        } else if (value instanceof Raw raw) {
            return raw.text();
        } else if (value instanceof byte[] bytes) {
            return quote(HexFormat.of().formatHex(bytes));
        }
        return quote(value.toString());
    }

    private static String quote(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char letter : text.toCharArray()) {
            if (letter == '"' || letter == '\\') {
                out.append('\\').append(letter);
            } else if (letter < ' ' || letter > '~') {
                out.append(String.format("\\u%04x", (int) letter));
            } else {
                out.append(letter);
            }
        }
        return out.append('"').toString();
    }
}
